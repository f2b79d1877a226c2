//! Which runs of extents go into one object: pure.
//!
//! Where requests have no price, each run has an object of its own. Where they have, runs share
//! objects, in the order in which their partitions were looked at:
//!
//! * **Small** ones (of fewer bytes than [`MergeRules::bytes_min`]) of any topics. They are merged
//!   again when their partitions go on, so their objects do not live for long.
//! * **Large** ones of one topic only. They are never merged again, and an object stays until all
//!   that it holds has left the log: partitions of one topic have one retention, and go together
//!   when it is deleted.
//!
//! Runs of a compacted topic share with nobody, so that what compaction takes out is soon gone from
//! the store.

use super::plan::MergeRules;
use floe_metadata::rows::Extent;
use kfs::TopicPartition;
use std::sync::Arc;

/// Sources of one object at most, whose extents are held until it is made: about 4 MiB.
const SOURCES_MAX: usize = 16_384;

/// Extents of a partition that are worth a merge.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) partition: TopicPartition,
    pub(crate) topic_name: Arc<str>,
    pub(crate) sources: Vec<Extent>,
}

impl Run {
    fn bytes(&self) -> u64 {
        // What each takes in the object: a marker becomes a batch.
        let bytes = |source: &Extent| source.bytes().max(kfs::MARKER_LEN as u64);
        self.sources.iter().map(bytes).sum()
    }
}

/// The runs of one object, of a partition each.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) runs: Vec<Run>,
    bytes: u64,
    sources: usize,
}

impl Group {
    fn has_room(&self, run: &Run, rules: &MergeRules) -> bool {
        self.bytes + run.bytes() <= rules.object_bytes_max
            && self.sources + run.sources.len() <= SOURCES_MAX
    }

    fn push(&mut self, run: Run) {
        self.bytes += run.bytes();
        self.sources += run.sources.len();
        self.runs.push(run);
    }

    fn is_of(&self, run: &Run) -> bool {
        self.runs.first().is_none_or(|first| first.partition.topic == run.partition.topic)
    }
}

/// The objects that are being gathered.
#[derive(Default)]
pub(crate) struct Groups {
    small: Group,
    large: Group,
}

impl Groups {
    /// Adds a run of a partition that has none here. Answers what is to be made now: the run itself
    /// where it shares with nobody, or what it has no room beside.
    pub(crate) fn add(&mut self, run: Run, may_share: bool, rules: &MergeRules) -> Option<Group> {
        if !may_share || !rules.shares() {
            let mut alone = Group::default();
            alone.push(run);
            return Some(alone);
        }
        let is_small = run.bytes() < rules.bytes_min;
        let group = if is_small { &mut self.small } else { &mut self.large };
        let fits = group.has_room(&run, rules) && (is_small || group.is_of(&run));
        let full = (!fits && !group.runs.is_empty()).then(|| std::mem::take(group));
        group.push(run);
        full
    }

    /// Takes all that is left.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Group> + use<> {
        let left = [std::mem::take(&mut self.small), std::mem::take(&mut self.large)];
        left.into_iter().filter(|group| !group.runs.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planned::extents;
    use kfs::{PartitionIndex, TopicId};

    fn rules() -> MergeRules {
        MergeRules { bytes_min: 100, object_bytes_max: 250, ..MergeRules::default() }
    }

    fn run(topic: u128, partition: i32, bytes: u64) -> Run {
        Run {
            partition: TopicPartition {
                topic: TopicId(uuid::Uuid::from_u128(topic)),
                partition: PartitionIndex(partition),
            },
            topic_name: "t".into(),
            sources: extents(&[(1, bytes)]),
        }
    }

    /// The groups that come of runs of these topics and bytes, as their runs' numbers.
    fn grouped(runs: &[(u128, u64)], may_share: bool, rules: &MergeRules) -> Vec<Vec<i32>> {
        let mut groups = Groups::default();
        let mut made = Vec::new();
        for (at, (topic, bytes)) in runs.iter().enumerate() {
            made.extend(groups.add(run(*topic, at as i32, *bytes), may_share, rules));
        }
        made.extend(groups.take());
        assert_eq!(groups.take().count(), 0);
        let numbers =
            |group: Group| group.runs.iter().map(|run| run.partition.partition.0).collect();
        made.into_iter().map(numbers).collect()
    }

    #[test]
    fn without_a_price_or_where_a_run_may_not_share_each_has_its_own() {
        let runs = [(1, 80), (1, 80), (1, 120), (1, 120)];
        let alone = [vec![0], vec![1], vec![2], vec![3]];
        assert_eq!(grouped(&runs, false, &rules()), alone);
        assert_eq!(grouped(&runs, true, &MergeRules { bytes_min: 0, ..rules() }), alone);
    }

    #[test]
    fn small_runs_of_any_topics_share_and_large_ones_of_one_topic() {
        let small = [(1, 80), (1, 80), (2, 80)];
        assert_eq!(grouped(&small, true, &rules()), [[0, 1, 2]]);
        let large = [(1, 100), (1, 100), (2, 100), (2, 100)];
        assert_eq!(grouped(&large, true, &rules()), [[0, 1], [2, 3]]);
        let mixed = [(1, 80), (1, 120), (1, 80), (1, 120), (2, 80), (2, 120)];
        assert_eq!(grouped(&mixed, true, &rules()), [vec![1, 3], vec![0, 2, 4], vec![5]]);
    }

    #[test]
    fn an_object_has_bounds() {
        assert_eq!(grouped(&[(1, 90); 4], true, &rules()), [[0, 1], [2, 3]]);
        assert_eq!(grouped(&[(1, 240), (1, 240)], true, &rules()), [[0], [1]]);
        let rules = MergeRules { object_bytes_max: u64::MAX, bytes_min: u64::MAX, ..rules() };
        let mut groups = Groups::default();
        let many = |partition| Run { sources: extents(&[(1, 1); 7_000]), ..run(1, partition, 1) };
        assert!(groups.add(many(0), true, &rules).is_none());
        assert!(groups.add(many(1), true, &rules).is_none());
        assert_eq!(groups.add(many(2), true, &rules).map(|group| group.runs.len()), Some(2));
    }
}
