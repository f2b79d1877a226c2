//! Replicas that a client assigns by hand. Nothing is replicated between brokers, so that all an
//! assignment may say is which brokers exist.

use floe_wire::messages::BrokerId;

/// Checks the replicas of one partition; `node_id` is the only broker that there is.
///
/// # Errors
/// Kafka's words for what is wrong.
pub(crate) fn check(replicas: &[BrokerId], node_id: i32) -> Result<(), String> {
    if replicas.is_empty() {
        return Err("The manual partition assignment includes an empty replica list.".to_owned());
    }
    if let Some(unknown) = replicas.iter().find(|replica| replica.0 != node_id) {
        return Err(format!(
            "The manual partition assignment includes broker {}, but no such broker is registered.",
            unknown.0
        ));
    }
    if replicas.len() > 1 {
        return Err(format!(
            "The manual partition assignment includes the broker {node_id} more than once."
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brokers_that_exist_once_each() {
        let words = |ids: &[i32]| {
            let ids: Vec<BrokerId> = ids.iter().map(|&id| BrokerId(id)).collect();
            check(&ids, 1).err()
        };
        assert_eq!(words(&[1]), None);
        assert!(words(&[]).unwrap().contains("empty replica list"));
        assert!(words(&[1, 987]).unwrap().contains("broker 987, but no such broker"));
        assert!(words(&[1, 1]).unwrap().contains("broker 1 more than once"));
    }
}
