//! Which error codes an answer carries, so that all of them are counted in one place.
//!
//! The table names each answer's error fields by their path; [`RequestContext::reply`] takes only
//! answers that stand in it. Fetch, whose answer is hand-written, counts for itself.

use super::RequestContext;
use floe_wire::ErrorCode;
use floe_wire::messages::*;

/// An answer whose error codes are known.
pub(super) trait Answer {
    /// Gives each error code of the answer to `count`, success among them.
    fn each_error(&self, count: &mut impl FnMut(i16));
}

/// Walks the fields of a value: `field` is an error code, `field { .. }` an array of structures.
macro_rules! walk {
    ($value:expr, $count:ident,) => {};
    ($value:expr, $count:ident, $array:ident { $($inner:tt)* } $($rest:tt)*) => {
        for element in &$value.$array {
            walk!(element, $count, $($inner)*);
        }
        walk!($value, $count, $($rest)*);
    };
    ($value:expr, $count:ident, $code:ident $($rest:tt)*) => {
        $count($value.$code);
        walk!($value, $count, $($rest)*);
    };
}

/// Makes [`Answer`]s of responses with their fields.
macro_rules! answers {
    ($($response:ident { $($fields:tt)* })*) => {
        $(impl Answer for $response {
            fn each_error(&self, count: &mut impl FnMut(i16)) {
                walk!(self, count, $($fields)*);
            }
        })*
    };
}

answers! {
    ProduceResponse { responses { partition_responses { error_code } } }
    ListOffsetsResponse { topics { partitions { error_code } } }
    MetadataResponse { error_code topics { error_code partitions { error_code } } }
    OffsetCommitResponse { topics { partitions { error_code } } }
    OffsetFetchResponse {
        error_code
        topics { partitions { error_code } }
        groups { error_code topics { partitions { error_code } } }
    }
    FindCoordinatorResponse { error_code coordinators { error_code } }
    JoinGroupResponse { error_code }
    HeartbeatResponse { error_code }
    LeaveGroupResponse { error_code members { error_code } }
    SyncGroupResponse { error_code }
    DescribeGroupsResponse { groups { error_code } }
    ListGroupsResponse { error_code }
    ApiVersionsResponse { error_code }
    CreateTopicsResponse { topics { error_code } }
    DeleteTopicsResponse { responses { error_code } }
    DeleteRecordsResponse { topics { partitions { error_code } } }
    InitProducerIdResponse { error_code }
    OffsetForLeaderEpochResponse { topics { partitions { error_code } } }
    AddPartitionsToTxnResponse {
        error_code
        results_by_transaction {
            topic_results { results_by_partition { partition_error_code } }
        }
        results_by_topic_v3_and_below { results_by_partition { partition_error_code } }
    }
    AddOffsetsToTxnResponse { error_code }
    EndTxnResponse { error_code }
    WriteTxnMarkersResponse { markers { topics { partitions { error_code } } } }
    TxnOffsetCommitResponse { topics { partitions { error_code } } }
    DescribeAclsResponse { error_code }
    CreateAclsResponse { results { error_code } }
    DeleteAclsResponse { filter_results { error_code } }
    DescribeConfigsResponse { results { error_code } }
    AlterConfigsResponse { responses { error_code } }
    DescribeLogDirsResponse { error_code results { error_code } }
    CreatePartitionsResponse { results { error_code } }
    DeleteGroupsResponse { results { error_code } }
    ElectLeadersResponse { error_code replica_election_results { partition_result { error_code } } }
    IncrementalAlterConfigsResponse { responses { error_code } }
    AlterPartitionReassignmentsResponse { error_code responses { partitions { error_code } } }
    ListPartitionReassignmentsResponse { error_code }
    OffsetDeleteResponse { error_code topics { partitions { error_code } } }
    DescribeClientQuotasResponse { error_code }
    DescribeClusterResponse { error_code }
    DescribeProducersResponse { topics { partitions { error_code } } }
    DescribeTransactionsResponse { transaction_states { error_code } }
    ListTransactionsResponse { error_code }
    ConsumerGroupHeartbeatResponse { error_code }
    ConsumerGroupDescribeResponse { groups { error_code } }
    ListConfigResourcesResponse { error_code }
    DescribeTopicPartitionsResponse { topics { error_code partitions { error_code } } }
}

impl RequestContext {
    /// Counts an answer's error codes.
    pub(super) fn count(&self, answer: &impl Answer) {
        answer.each_error(&mut |code| self.count_code(code));
    }

    /// Counts one error code of an answer; success is none.
    pub(super) fn count_code(&self, code: i16) {
        if code != 0 {
            let error = ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError);
            self.metrics.kafka.error(self.api as i16, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_wire::messages::metadata_response::{
        MetadataResponsePartition, MetadataResponseTopic,
    };

    #[test]
    fn every_level_of_an_answer_is_walked() {
        let partition = |code| MetadataResponsePartition::default().with_error_code(code);
        let topic = MetadataResponseTopic::default()
            .with_error_code(3)
            .with_partitions(vec![partition(5), partition(0)]);
        let answer = MetadataResponse::default().with_error_code(29).with_topics(vec![topic]);
        let mut codes = Vec::new();
        answer.each_error(&mut |code| codes.push(code));
        assert_eq!(codes, vec![29, 3, 5, 0]);
    }
}
