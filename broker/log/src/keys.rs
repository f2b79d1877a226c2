//! The keys of the log's objects, below the cluster's root. Each names the registration of the
//! broker that put it, so that whatever a closed registration left behind can be told from what a
//! living one is about to commit.

use kfs::{BrokerEpoch, BrokerId, PartitionIndex, SegmentId, TopicId, TopicPartition};

/// The folder of fresh segments.
pub(crate) const FRESH_FOLDER: &str = "wal";
/// The folder of merged objects.
pub(crate) const MERGED_FOLDER: &str = "log";

/// The key of a fresh segment, below the cluster's root. The two hex digits spread the keys over a
/// store's partitions.
pub fn segment_key(id: SegmentId) -> String {
    format!("{FRESH_FOLDER}/{:02x}/{id}.kfs", spread(&id.to_string()))
}

/// The key of an object that merging or compaction makes of one partition, below the cluster's
/// root. `id` is the merge: the registration that makes it, and its number there.
pub(crate) fn merged_key(partition: TopicPartition, base_offset: i64, id: SegmentId) -> String {
    let TopicPartition { topic, partition } = partition;
    let name = format!("{topic}/{partition}/{base_offset:020}-{id}");
    format!("{MERGED_FOLDER}/{:02x}/{name}.kfs", spread(&name))
}

/// The same of an object that several partitions share.
pub(crate) fn shared_key(id: SegmentId) -> String {
    format!("{MERGED_FOLDER}/{:02x}/{id}.kfs", spread(&id.to_string()))
}

/// Who put the object of a key: exactly the keys of the three functions above have an owner.
pub(crate) fn owner(key: &str) -> Option<SegmentId> {
    match key.strip_suffix(".kfs")?.split('/').collect::<Vec<_>>()[..] {
        [FRESH_FOLDER, _, id] => segment_id(id).filter(|id| segment_key(*id) == key),
        [MERGED_FOLDER, _, id] => segment_id(id).filter(|id| shared_key(*id) == key),
        [MERGED_FOLDER, _, topic, partition, name] => {
            let (base_offset, id) = name.split_once('-')?;
            let (topic, partition) = (topic.parse().ok()?, partition.parse().ok()?);
            let named =
                TopicPartition { topic: TopicId(topic), partition: PartitionIndex(partition) };
            let base_offset = base_offset.parse().ok()?;
            segment_id(id).filter(|id| merged_key(named, base_offset, *id) == key)
        }
        _ => None,
    }
}

fn segment_id(text: &str) -> Option<SegmentId> {
    let [broker, epoch, counter] = text.split('-').collect::<Vec<_>>()[..] else { return None };
    Some(SegmentId {
        broker: BrokerId(broker.parse().ok()?),
        epoch: BrokerEpoch(epoch.parse().ok()?),
        counter: counter.parse().ok()?,
    })
}

fn spread(name: &str) -> u8 {
    crc32c::crc32c(name.as_bytes()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_from_exactly_the_keys_that_the_log_makes() {
        let id = SegmentId { broker: BrokerId(3), epoch: BrokerEpoch(12), counter: 7 };
        let partition = TopicPartition {
            topic: TopicId(uuid::Uuid::from_u128(5)),
            partition: PartitionIndex(9),
        };
        let (fresh, merged) = (segment_key(id), merged_key(partition, 41, id));
        assert!(merged.ends_with("/9/00000000000000000041-3-12-7.kfs"), "{merged}");
        let shared = shared_key(id);
        assert!(shared.starts_with("log/") && shared.ends_with("/3-12-7.kfs"), "{shared}");
        for key in [&fresh, &merged, &shared] {
            assert_eq!(owner(key), Some(id), "{key}");
            for other in [
                format!("x/{key}"),
                key.replace(".kfs", ".tmp"),
                key.replace("-12-", "-012-"),
                key.replace("-12-", "-+12-"),
                key.replace("-12-7", "-12"),
                key.replace("-12-7", "-13-7"),
                key.replace("wal/", "tables/").replace("log/", "tables/"),
            ] {
                assert_eq!(owner(&other), None, "{other}");
            }
        }
        assert_eq!(owner(""), None);
    }
}
