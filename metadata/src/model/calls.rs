//! The backend's calls on the model.

use super::{ModelBackend, Object, State};
use crate::backend::Backend;
use crate::decide::{self, CommitPartition, CommitRows, CommitWrites, MarkerRow, NewObject};
use crate::facts::{Change, ChangeOutcome, FactKey, FactRange, Fence};
use crate::rows::{
    AbortedInRange, DeadObject, Extent, ExtentPage, FreshBounds, MarkerFacts, MarkerOutcome,
    PartitionState, ProducerState, Replacement, SegmentFacts, SegmentOutcome,
};
use crate::transactions::{decode_row, put_row, transaction_key};
use crate::validate;
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::{Error, Result};
use kfs::{BrokerEpoch, BrokerId, SegmentId, TopicPartition};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

impl State {
    fn commit_rows(&self, segments: &[SegmentFacts]) -> Result<CommitRows> {
        let mut rows = CommitRows::default();
        for segment in segments {
            self.check_not_forgotten(segment.id)?;
            if let Some(outcome) = self.outcomes.get(&segment.id) {
                rows.decided.insert(segment.id, outcome.clone());
            }
        }
        for named in decide::partitions_named(segments) {
            if let Some(partition) = self.partitions.get(&named) {
                rows.partitions.insert(named, partition.to_commit());
            }
        }
        for (named, id) in rows.maybe_spilled(segments) {
            let producer = self.partitions.get(&named).and_then(|known| known.producers.get(&id));
            if let (Some(row), Some(producer)) = (rows.partitions.get_mut(&named), producer) {
                row.producers.put_spilled(producer.clone());
            }
        }
        for id in rows.asks_transactions(segments) {
            let key = transaction_key(&id);
            if let Some(value) = self.facts.get(key.as_str()) {
                rows.transactions.insert(id, decode_row(&key, value)?);
            }
        }
        Ok(rows)
    }

    /// Makes a change if its fence and checks hold; answers whether the checks did.
    fn try_change(&mut self, change: &Change, now_ms: i64) -> Result<bool> {
        change.fence.iter().try_for_each(|fence| self.check_fence(fence))?;
        for check in &change.checks {
            let value = self.facts.get(check.key.as_str());
            if !validate::holds(check, value.map(|value| value.as_ref())) {
                return Ok(false);
            }
        }
        for change in &change.partitions {
            if let Some((partition, _)) = validate::created_partition(change)
                && self.partitions.contains_key(&partition)
            {
                return Err(validate::partition_exists(partition));
            }
        }
        self.apply(change, now_ms);
        Ok(true)
    }

    /// Writes one marker.
    fn end(&mut self, marker: &MarkerFacts, now_ms: i64) -> MarkerOutcome {
        let Some(partition) = self.partitions.get_mut(&marker.partition) else {
            return MarkerOutcome::UnknownPartition;
        };
        let mut row = partition.to_commit();
        if let Some(producer) = partition.producers.get(&marker.producer) {
            row.producers.put_spilled(producer.clone());
        }
        let (outcome, written) = decide::decide_marker(&mut row, marker, now_ms);
        if let Some(MarkerRow { extent, aborted }) = written {
            partition.state = row.state;
            let producers = row.producers.into_states().into_iter();
            partition.producers.extend(producers.map(|state| (state.id, state)));
            partition.extents.insert(extent.base_offset, extent);
            partition.aborted.extend(aborted.map(|aborted| (aborted.last_offset, aborted)));
        }
        outcome
    }

    fn write_commit(&mut self, writes: &CommitWrites, now_ms: i64) -> Result<()> {
        let mut keys = BTreeSet::new();
        for NewObject { key, .. } in &writes.objects {
            if self.objects.contains_key(key) || !keys.insert(key) {
                return Err(validate::object_exists(key));
            }
        }
        for object in &writes.objects {
            let live_bytes = object.live_bytes();
            let dead_since_ms = (live_bytes == 0).then_some(now_ms);
            let row = Object { size: object.size, live_bytes, dead_since_ms };
            self.objects.insert(object.key.clone(), row);
        }
        for (named, row) in &writes.partitions {
            let partition = self.partition(named);
            partition.state = row.state;
            let producers = row.producers.oldest_first().into_iter().chain(&row.spilled);
            partition.producers.extend(producers.map(|state| (state.id, state.clone())));
        }
        for object in &writes.objects {
            for (named, extent) in &object.extents {
                let extent = extent.in_object(&object.key);
                self.partition(named).extents.insert(extent.base_offset, extent);
            }
        }
        self.outcomes.extend(writes.decided().map(|(id, outcome)| (id, outcome.clone())));
        let writes = writes.transactions.iter().map(|(id, row)| put_row(id, row)).collect();
        self.apply(&Change { writes, ..Change::default() }, now_ms);
        Ok(())
    }

    fn partition(&mut self, named: &TopicPartition) -> &mut super::Partition {
        self.partitions.get_mut(named).expect("a commit writes only what it read")
    }
}

impl super::Partition {
    /// As a commit reads it: with the producers that have a transaction open. Others must be added.
    fn to_commit(&self) -> CommitPartition {
        let mut row = CommitPartition { state: self.state, ..Default::default() };
        row.producers.has_spilled = true;
        let open = self.producers.values().filter(|known| known.transaction_start.is_some());
        open.for_each(|producer| row.producers.put_spilled(producer.clone()));
        row
    }
}

#[async_trait]
impl Backend for ModelBackend {
    async fn commit_segments(
        &self,
        fence: &Fence,
        segments: &[SegmentFacts],
    ) -> Result<Vec<SegmentOutcome>> {
        validate::check_segments(segments)?;
        let now_ms = self.env.now_ms();
        let mut state = self.state.lock();
        state.check_fence(fence)?;
        let rows = state.commit_rows(segments)?;
        let writes = decide::decide_commit(segments, rows, now_ms);
        state.write_commit(&writes, now_ms)?;
        Ok(writes.outcomes)
    }

    async fn segment_outcome(&self, id: SegmentId) -> Result<Option<SegmentOutcome>> {
        validate::check_segment_id(id)?;
        let state = self.state.lock();
        state.check_not_forgotten(id)?;
        Ok(state.outcomes.get(&id).cloned())
    }

    async fn abandon_segment(&self, fence: &Fence, id: SegmentId) -> Result<SegmentOutcome> {
        validate::check_segment_id(id)?;
        let mut state = self.state.lock();
        state.check_fence(fence)?;
        state.check_not_forgotten(id)?;
        let outcome = state.outcomes.entry(id).or_insert(SegmentOutcome::Abandoned);
        Ok(outcome.clone())
    }

    async fn forget_outcomes(&self, fence: &Fence, up_to: SegmentId) -> Result<()> {
        validate::check_segment_id(up_to)?;
        let mut state = self.state.lock();
        state.check_fence(fence)?;
        let forgotten = state.forgotten.entry((up_to.broker, up_to.epoch)).or_default();
        *forgotten = (*forgotten).max(up_to.counter);
        let first = SegmentId { counter: 0, ..up_to };
        let gone: Vec<SegmentId> = state.outcomes.range(first..=up_to).map(|(id, _)| *id).collect();
        for id in gone {
            state.outcomes.remove(&id);
        }
        Ok(())
    }

    async fn forget_registrations(&self, broker: BrokerId, up_to: BrokerEpoch) -> Result<()> {
        let mut state = self.state.lock();
        let is_kept = |id: BrokerId, epoch: BrokerEpoch| id != broker || epoch > up_to;
        state.outcomes.retain(|id, _| is_kept(id.broker, id.epoch));
        state.forgotten.retain(|(id, epoch), _| is_kept(*id, *epoch));
        Ok(())
    }

    async fn partition_states(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Option<PartitionState>>> {
        self.state_reads.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock();
        let states = partitions.iter().map(|named| state.partitions.get(named).map(|p| p.state));
        Ok(states.collect())
    }

    async fn extents(
        &self,
        partition: TopicPartition,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentPage>> {
        let state = self.state.lock();
        Ok(state.partitions.get(&partition).map(|partition| {
            let extents = partition.extents.values();
            let wanted = extents.filter(|extent| extent.last_offset >= offset).take(limit);
            ExtentPage { state: partition.state, extents: wanted.cloned().collect() }
        }))
    }

    async fn extent_by_time(
        &self,
        partition: TopicPartition,
        timestamp_ms: i64,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        let state = self.state.lock();
        Ok(state.partitions.get(&partition).map(|partition| {
            let mut extents = partition.extents.values();
            let found = extents.find(|extent| extent.max_timestamp_ms >= timestamp_ms);
            (partition.state, found.cloned())
        }))
    }

    async fn extent_of_max_timestamp(
        &self,
        partition: TopicPartition,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        let state = self.state.lock();
        Ok(state.partitions.get(&partition).map(|partition| {
            // The last of equals is the maximum, so the search goes from the end.
            let extents = partition.extents.values().rev();
            let found = extents.max_by_key(|extent| extent.max_timestamp_ms);
            (partition.state, found.cloned())
        }))
    }

    async fn producers(&self, partition: TopicPartition) -> Result<Vec<ProducerState>> {
        let state = self.state.lock();
        let partition = state.partitions.get(&partition);
        Ok(partition.map(|found| found.producers.values().cloned().collect()).unwrap_or_default())
    }

    async fn expire_producers(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        written_before_ms: i64,
    ) -> Result<usize> {
        let mut state = self.state.lock();
        fence.into_iter().try_for_each(|fence| state.check_fence(fence))?;
        let Some(found) = state.partitions.get_mut(&partition) else {
            return Ok(0);
        };
        let before = found.producers.len();
        found.producers.retain(|_, producer| {
            producer.transaction_start.is_some() || producer.last_written_ms >= written_before_ms
        });
        let expired = before - found.producers.len();
        found.state.version += u64::from(expired > 0);
        Ok(expired)
    }

    async fn end_transaction(
        &self,
        change: &Change,
        markers: &[MarkerFacts],
    ) -> Result<Option<Vec<MarkerOutcome>>> {
        validate::check_end(change, markers)?;
        let now_ms = self.env.now_ms();
        let mut state = self.state.lock();
        if !state.try_change(change, now_ms)? {
            return Ok(None);
        }
        let outcomes = markers.iter().map(|marker| state.end(marker, now_ms)).collect();
        match self.loses_end.swap(false, Ordering::Relaxed) {
            true => Err(Error::unknown_outcome("the answer was lost")),
            false => Ok(Some(outcomes)),
        }
    }

    async fn aborted(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
    ) -> Result<Option<AbortedInRange>> {
        self.aborted_reads.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock();
        let Some(partition) = state.partitions.get(&partition) else {
            return Ok(None);
        };
        let ended = partition.aborted.range(from..).map(|(_, aborted)| *aborted);
        let transactions = ended.filter(|aborted| aborted.first_offset < until).collect();
        Ok(Some(AbortedInRange { state: partition.state, transactions }))
    }

    async fn advance_log_start(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        offset: i64,
    ) -> Result<Option<PartitionState>> {
        let now_ms = self.env.now_ms();
        let mut state = self.state.lock();
        fence.into_iter().try_for_each(|fence| state.check_fence(fence))?;
        let Some(found) = state.partitions.get_mut(&partition) else {
            return Ok(None);
        };
        let log_start = offset.min(found.state.high_watermark);
        if log_start <= found.state.log_start_offset {
            return Ok(Some(found.state));
        }
        found.state.log_start_offset = log_start;
        found.state.last_stable_offset = found.state.last_stable_offset.max(log_start);
        found.state.version += 1;
        let extents = found.extents.values();
        let below = extents.take_while(|extent| extent.last_offset < log_start);
        let dropped: Vec<Extent> = below.cloned().collect();
        for extent in &dropped {
            found.extents.remove(&extent.base_offset);
            found.state.bytes -= extent.bytes();
        }
        found.aborted.retain(|last_offset, _| *last_offset >= log_start);
        let after = found.state;
        for extent in &dropped {
            state.dereference(extent, now_ms);
        }
        Ok(Some(after))
    }

    async fn replace_extents(
        &self,
        fence: &Fence,
        replacement: &Replacement,
    ) -> Result<ChangeOutcome> {
        validate::check_replacement(replacement)?;
        let now_ms = self.env.now_ms();
        let mut state = self.state.lock();
        state.check_fence(fence)?;
        let Some(partition) = state.partitions.get(&replacement.partition) else {
            return Ok(ChangeOutcome::Rejected);
        };
        let is_there = |source: &Extent| partition.extents.get(&source.base_offset) == Some(source);
        if !replacement.sources.iter().all(is_there) {
            return Ok(ChangeOutcome::Rejected);
        }
        if replacement.joins_object && !state.are_alive(validate::named_objects(replacement)) {
            return Ok(ChangeOutcome::Rejected);
        }
        state.replace(replacement, now_ms)?;
        Ok(ChangeOutcome::Applied)
    }

    async fn unpack_fresh(&self, _kept: FreshBounds) -> Result<usize> {
        // The model has no packed rows.
        Ok(0)
    }

    async fn dead_objects(&self, dead_before_ms: i64, limit: usize) -> Result<Vec<DeadObject>> {
        let state = self.state.lock();
        let dead = state.objects.iter().filter_map(|(key, object)| {
            let dead_since_ms = object.dead_since_ms?;
            (dead_since_ms < dead_before_ms).then(|| DeadObject {
                key: key.clone(),
                size: object.size,
                dead_since_ms,
            })
        });
        let mut dead: Vec<DeadObject> = dead.collect();
        dead.sort_by(|a, b| (a.dead_since_ms, &a.key).cmp(&(b.dead_since_ms, &b.key)));
        dead.truncate(limit);
        Ok(dead)
    }

    async fn known_objects(&self, keys: &[String]) -> Result<Vec<bool>> {
        let state = self.state.lock();
        Ok(keys.iter().map(|key| state.objects.contains_key(key)).collect())
    }

    async fn forget_objects(&self, keys: &[String]) -> Result<()> {
        let mut state = self.state.lock();
        for key in keys {
            let is_dead = |object: &Object| object.dead_since_ms.is_some();
            if state.objects.get(key).is_some_and(is_dead) {
                state.objects.remove(key);
            }
        }
        Ok(())
    }

    async fn get(&self, keys: &[FactKey]) -> Result<Vec<Option<Bytes>>> {
        let state = self.state.lock();
        Ok(keys.iter().map(|key| state.facts.get(key.as_str()).cloned()).collect())
    }

    async fn scan(&self, range: &FactRange, limit: usize) -> Result<Vec<(FactKey, Bytes)>> {
        validate::check_range(range)?;
        let state = self.state.lock();
        let found = state.facts.range(range.from.clone()..range.until.clone()).take(limit);
        let facts = found.map(|(key, value)| (FactKey::from_stored(key.clone()), value.clone()));
        Ok(facts.collect())
    }

    async fn change(&self, change: &Change) -> Result<ChangeOutcome> {
        validate::check_change(change)?;
        let now_ms = self.env.now_ms();
        let is_made = self.state.lock().try_change(change, now_ms)?;
        Ok(if is_made { ChangeOutcome::Applied } else { ChangeOutcome::Rejected })
    }

    async fn now_ms(&self) -> Result<i64> {
        Ok(self.env.now_ms())
    }
}
