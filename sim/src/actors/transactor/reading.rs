//! What a reader of committed records sees of the producer's topic.

use super::Transactor;
use crate::actors::topic_name;
use crate::client::{Connection, Gone};
use crate::dice::chance;
use floe_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use floe_wire::messages::{BrokerId, FetchRequest};
use kfs::{ControlRecord, Marker};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that one batch may decompress to.
const BATCH_BYTES_MAX: usize = 1 << 20;
const FETCH_VERSION: i16 = 12;
/// Looks that go on where the one before ended, as consumers do, per mille; others begin anew.
const FOLLOWS: u64 = 700;

/// How far a partition has been read, and the transactions whose records were seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Followed {
    offset: i64,
    seen: Vec<usize>,
}

impl Transactor {
    /// Reads all partitions, mostly from where it was the last time; the partitions of each
    /// transaction that was seen. `None` where another broker has replaced the one that was asked.
    pub(super) async fn look(
        &mut self,
        connection: &mut Connection,
    ) -> Result<Option<BTreeMap<usize, Vec<i32>>>, Gone> {
        if !chance(&self.context.env, FOLLOWS) {
            self.followed.clear();
        }
        for partition in 0..self.partitions {
            let mut followed = self.followed.remove(&partition).unwrap_or_default();
            self.read(connection, partition, &mut followed).await?;
            if connection.is_stale() {
                return Ok(None);
            }
            self.followed.insert(partition, followed);
        }
        let mut seen: BTreeMap<usize, Vec<i32>> = BTreeMap::new();
        for (partition, followed) in &self.followed {
            for number in &followed.seen {
                seen.entry(*number).or_default().push(*partition);
            }
        }
        Ok(Some(seen))
    }

    /// Reads one partition to its end.
    async fn read(
        &self,
        connection: &mut Connection,
        partition: i32,
        followed: &mut Followed,
    ) -> Result<(), Gone> {
        loop {
            let offset = followed.offset;
            let asked = FetchPartition::default()
                .with_partition(partition)
                .with_fetch_offset(offset)
                .with_partition_max_bytes(1 << 20);
            let topic = FetchTopic::default()
                .with_topic(topic_name(&self.topic))
                .with_partitions(vec![asked]);
            let request = FetchRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_max_bytes(1 << 20)
                .with_isolation_level(1)
                .with_session_epoch(-1)
                .with_topics(vec![topic]);
            let answer = self.context.call(connection, FETCH_VERSION, &request).await?;
            let found = answer.responses.into_iter().flat_map(|topic| topic.partitions).next();
            let found = found.ok_or_else(|| Gone("an answer without a partition".to_owned()))?;
            if found.error_code != 0 {
                return Err(Gone(format!("Fetch: code {}", found.error_code)));
            }
            let aborted = found.aborted_transactions.unwrap_or_default();
            let aborted = aborted.iter().map(|one| (one.producer_id.0, one.first_offset)).collect();
            let records = found.records.unwrap_or_default();
            let seen = &mut followed.seen;
            followed.offset = take_committed(&records, offset, aborted, seen).map_err(Gone)?;
            if followed.offset == offset {
                return Ok(());
            }
        }
    }
}

/// What a client makes of batches and a list of aborted transactions: it leaves a producer's
/// records out from the first offset of one of its aborted transactions until it sees the abort's
/// marker. Answers where to go on.
fn take_committed(
    bytes: &[u8],
    from: i64,
    mut aborted: Vec<(i64, i64)>,
    seen: &mut Vec<usize>,
) -> Result<i64, String> {
    aborted.sort_by_key(|(_, first_offset)| *first_offset);
    let mut aborted = aborted.into_iter().peekable();
    let mut left_out: BTreeSet<i64> = BTreeSet::new();
    let mut next = from;
    for batch in kfs::batches(bytes) {
        let batch = batch.map_err(|error| error.to_string())?;
        batch.verify_crc().map_err(|error| error.to_string())?;
        let header = batch.header;
        while let Some((producer, _)) =
            aborted.next_if(|(_, first_offset)| *first_offset <= header.last_offset())
        {
            left_out.insert(producer);
        }
        next = header.last_offset() + 1;
        let records = batch.records(BATCH_BYTES_MAX).map_err(|error| error.to_string())?;
        for record in records.iter() {
            let record = record.map_err(|error| error.to_string())?;
            if header.is_control() {
                let control = ControlRecord::parse(&record);
                if matches!(control, ControlRecord::End { marker: Marker::Abort, .. }) {
                    left_out.remove(&header.producer_id);
                }
            } else if !left_out.contains(&header.producer_id) && header.last_offset() >= from {
                let text = std::str::from_utf8(record.value.unwrap_or_default());
                let number = text.ok().and_then(|text| text.parse().ok());
                seen.push(number.ok_or("a record that nobody sent")?);
            }
        }
    }
    Ok(next)
}
