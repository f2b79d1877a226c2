//! What a client may do, as the bit sets that answers carry. There is no authorizer: everything is
//! allowed.

/// What "not asked for" is.
pub(crate) const OPERATIONS_UNKNOWN: i32 = i32::MIN;

/// All that may be done with a topic: read, write, create, delete, alter, describe, describe and
/// alter configs.
pub(crate) const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;

/// All that may be done with a cluster: create, alter, describe, cluster action, describe and alter
/// configs, idempotent write.
pub(crate) const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;

/// All that may be done with a group: read, delete, describe, describe and alter configs.
pub(crate) const GROUP_OPERATIONS: i32 = 0b1101_0100_1000;

/// What an answer says of these operations: all of them where its client asked.
pub(crate) fn if_asked(is_asked: bool, operations: i32) -> i32 {
    if is_asked { operations } else { OPERATIONS_UNKNOWN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_those_of_kafka_without_an_authorizer() {
        assert_eq!((TOPIC_OPERATIONS, CLUSTER_OPERATIONS), (3576, 8096));
        assert_eq!(GROUP_OPERATIONS, 3400);
    }
}
