//! `range`: topic by topic, every subscriber gets as many partitions as the others, or one more.
//! What a member keeps is what is lowest, so that topics with equal numbers of partitions and equal
//! histories fall to the same members at the same indexes.

use super::{Partitions, Subscriber, nothing, subscribers};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

pub(super) fn assign<'a>(
    members: &BTreeMap<&'a str, Subscriber<'_>>,
    counts: &BTreeMap<Uuid, i32>,
) -> BTreeMap<&'a str, Partitions> {
    let mut targets = nothing(members);
    for (topic, count) in counts {
        for (member_id, indexes) in assign_topic(members, *topic, *count) {
            if let Some(target) = targets.get_mut(member_id).filter(|_| !indexes.is_empty()) {
                target.insert(*topic, indexes);
            }
        }
    }
    targets
}

fn assign_topic<'a>(
    members: &BTreeMap<&'a str, Subscriber<'_>>,
    topic: Uuid,
    count: i32,
) -> Vec<(&'a str, BTreeSet<i32>)> {
    let subscribers = subscribers(members, topic);
    if subscribers.is_empty() {
        return Vec::new();
    }
    let total = usize::try_from(count).unwrap_or(0);
    let (quota, mut extras) = (total / subscribers.len(), total % subscribers.len());
    let mut shares = Vec::with_capacity(subscribers.len());
    for member_id in subscribers {
        let previous = members[member_id].previous.get(&topic);
        let mut kept: BTreeSet<i32> = previous.into_iter().flatten().copied().collect();
        kept.retain(|index| (0..count).contains(index));
        let mut limit = quota;
        if kept.len() > quota && extras > 0 {
            limit += 1;
            extras -= 1;
        }
        let surplus: Vec<i32> = kept.iter().skip(limit).copied().collect();
        for index in surplus {
            kept.remove(&index);
        }
        shares.push((member_id, limit, kept));
    }
    let taken: BTreeSet<i32> = shares.iter().flat_map(|(_, _, kept)| kept).copied().collect();
    let mut free = (0..count).filter(|index| !taken.contains(index));
    let filled = shares.into_iter().map(|(member_id, limit, mut share)| {
        let mut limit = limit;
        if limit == quota && extras > 0 {
            limit += 1;
            extras -= 1;
        }
        let missing = limit.saturating_sub(share.len());
        share.extend(free.by_ref().take(missing));
        (member_id, share)
    });
    filled.collect()
}
