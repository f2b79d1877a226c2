//! Offsets of a group that are committed with the transaction: the number of the transaction, so
//! that the offset that is told says which one was the last to be committed.

use super::{Fate, Told, Transactor};
use crate::actors::topic_name;
use crate::client::{Connection, Gone};
use floe_wire::messages::offset_fetch_request::OffsetFetchRequestTopic;
use floe_wire::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use floe_wire::messages::{
    AddOffsetsToTxnRequest, GroupId, OffsetFetchRequest, ProducerId, StrBytes,
    TxnOffsetCommitRequest,
};
use std::collections::BTreeMap;

const ADD_VERSION: i16 = 3;
const FETCH_VERSION: i16 = 7;
/// The partition whose offset it is.
const PARTITION: i32 = 0;

impl Transactor {
    fn group(&self) -> GroupId {
        GroupId(StrBytes::from_string(format!("transfers-{}", self.context.id)))
    }

    /// Commits the transaction's number with it; true if it was taken.
    pub(super) async fn commit_offset(
        &mut self,
        connection: &mut Connection,
        number: usize,
    ) -> Result<bool, Gone> {
        let (producer_id, epoch) = self.sender()?;
        if !self.raises_epoch {
            let request = AddOffsetsToTxnRequest::default()
                .with_transactional_id(self.id())
                .with_producer_id(ProducerId(producer_id))
                .with_producer_epoch(epoch)
                .with_group_id(self.group());
            let answer = self.context.call(connection, ADD_VERSION, &request).await?;
            self.expected("AddOffsetsToTxn", answer.error_code);
            if answer.error_code != 0 {
                return Ok(false);
            }
        }
        let partition = TxnOffsetCommitRequestPartition::default()
            .with_partition_index(PARTITION)
            .with_committed_offset(number as i64);
        let topic = TxnOffsetCommitRequestTopic::default()
            .with_name(topic_name(&self.topic))
            .with_partitions(vec![partition]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(self.id())
            .with_group_id(self.group())
            .with_producer_id(ProducerId(producer_id))
            .with_producer_epoch(epoch)
            .with_generation_id(-1)
            .with_topics(vec![topic]);
        let version = if self.raises_epoch { 5 } else { 3 };
        let answer = self.context.call(connection, version, &request).await?;
        let mut codes = answer.topics.iter().flat_map(|topic| &topic.partitions);
        let code = codes.next().map_or(-1, |partition| partition.error_code);
        self.expected("TxnOffsetCommit", code);
        self.told[number].has_offset = code == 0;
        Ok(code == 0)
    }

    /// Compares the committed offset, once nothing is open, with what was told of the transactions
    /// and what was seen of them.
    pub(super) async fn check_offset(
        &self,
        connection: &mut Connection,
        seen: &BTreeMap<usize, Vec<i32>>,
    ) -> Result<(), Gone> {
        let topic = OffsetFetchRequestTopic::default()
            .with_name(topic_name(&self.topic))
            .with_partition_indexes(vec![PARTITION]);
        let request = OffsetFetchRequest::default()
            .with_group_id(self.group())
            .with_topics(Some(vec![topic]))
            .with_require_stable(true);
        let answer = self.context.call(connection, FETCH_VERSION, &request).await?;
        let found = answer.topics.iter().flat_map(|topic| &topic.partitions).next();
        let found = found.filter(|found| found.error_code == 0 && answer.error_code == 0);
        let found = found.ok_or_else(|| Gone("OffsetFetch: an error".to_owned()))?;
        if connection.is_stale() {
            return Ok(());
        }
        let offset = found.committed_offset;
        let told = self.told.iter().enumerate();
        let is_told = |told: &Told| told.has_offset || told.fate == Fate::Aborted;
        for (number, told) in told.filter(|(_, told)| is_told(told)) {
            let (at, is_seen) = (number as i64, seen.contains_key(&number));
            let is_right = match told.fate {
                Fate::Committed => at <= offset,
                Fate::Aborted => at != offset,
                // Its records say how it ended, if it has any.
                Fate::Unknown if told.partitions.is_empty() || at < offset => true,
                Fate::Unknown => is_seen == (at == offset),
            };
            if !is_right {
                self.context.model.violation(format!(
                    "offset of transaction {number}: {:?}, seen: {is_seen}, and {offset} is told",
                    told.fate
                ));
            }
        }
        Ok(())
    }
}
