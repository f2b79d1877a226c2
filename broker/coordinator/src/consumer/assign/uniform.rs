//! `uniform`: every member gets as many partitions as the others, as far as the subscriptions
//! allow. Members keep what they had; what is free goes to whoever has least; then partitions move
//! from those who have most to those who have least until no move brings two members closer.

use super::{Partitions, Subscriber, nothing, subscribers};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Rounds of balancing over all topics. Members with equal subscriptions are balanced after one or
/// two; after so many the rest of the imbalance is left as it is.
const ROUNDS_MAX: usize = 16;

pub(super) fn assign<'a>(
    members: &BTreeMap<&'a str, Subscriber<'_>>,
    counts: &BTreeMap<Uuid, i32>,
) -> BTreeMap<&'a str, Partitions> {
    let mut draft = Draft::of(members, counts);
    // Topics that few can take come first, so that their members are still free for them.
    let mut topics: Vec<Topic<'a>> = counts
        .iter()
        .map(|(id, count)| Topic { id: *id, count: *count, subscribers: subscribers(members, *id) })
        .collect();
    topics.sort_by_key(|topic| (topic.subscribers.len(), topic.id));
    for topic in &topics {
        draft.give_free(topic);
    }
    for _ in 0..ROUNDS_MAX {
        let moved: usize = topics.iter().map(|topic| draft.balance(topic)).sum();
        if moved == 0 {
            break;
        }
    }
    draft.targets
}

struct Topic<'a> {
    id: Uuid,
    count: i32,
    subscribers: Vec<&'a str>,
}

/// An assignment while it is made.
struct Draft<'a> {
    targets: BTreeMap<&'a str, Partitions>,
    /// Partitions per member, over all topics.
    loads: BTreeMap<&'a str, usize>,
}

impl<'a> Draft<'a> {
    /// What members had and may keep.
    fn of(members: &BTreeMap<&'a str, Subscriber<'_>>, counts: &BTreeMap<Uuid, i32>) -> Self {
        let mut draft = Self { targets: nothing(members), loads: BTreeMap::new() };
        for (&member_id, member) in members {
            draft.loads.insert(member_id, 0);
            for (topic, indexes) in member.previous {
                let count = counts.get(topic).filter(|_| member.topics.contains(topic));
                let range = 0..count.copied().unwrap_or(0);
                for index in indexes.iter().filter(|index| range.contains(index)) {
                    draft.give(member_id, *topic, *index);
                }
            }
        }
        draft
    }

    fn give(&mut self, member_id: &'a str, topic: Uuid, index: i32) {
        let target = self.targets.entry(member_id).or_default();
        target.entry(topic).or_default().insert(index);
        *self.loads.entry(member_id).or_default() += 1;
    }

    fn load(&self, member_id: &str) -> usize {
        self.loads.get(member_id).copied().unwrap_or(0)
    }

    fn partitions_of(&self, member_id: &str, topic: Uuid) -> Option<&BTreeSet<i32>> {
        self.targets.get(member_id)?.get(&topic)
    }

    /// Gives the partitions that nobody has to the subscribers that have least.
    fn give_free(&mut self, topic: &Topic<'a>) {
        let had = topic.subscribers.iter().filter_map(|it| self.partitions_of(it, topic.id));
        let had: BTreeSet<i32> = had.flatten().copied().collect();
        let mut by_load: BTreeSet<(usize, &'a str)> =
            topic.subscribers.iter().map(|it| (self.load(it), *it)).collect();
        for index in (0..topic.count).filter(|index| !had.contains(index)) {
            let Some((load, member_id)) = by_load.pop_first() else { return };
            self.give(member_id, topic.id, index);
            by_load.insert((load + 1, member_id));
        }
    }

    /// Moves partitions of one topic between its subscribers; the number of moves.
    fn balance(&mut self, topic: &Topic<'a>) -> usize {
        let mut by_load: BTreeSet<(usize, &'a str)> =
            topic.subscribers.iter().map(|it| (self.load(it), *it)).collect();
        let givers = by_load.iter().filter(|(_, it)| self.partitions_of(it, topic.id).is_some());
        let mut givers: BTreeSet<(usize, &'a str)> = givers.copied().collect();
        let mut moves = 0;
        while let (Some(giver), Some(taker)) = (givers.last().copied(), by_load.first().copied()) {
            if giver.0 <= taker.0 + 1 {
                break;
            }
            self.move_one(giver.1, taker.1, topic.id);
            for set in [&mut by_load, &mut givers] {
                set.remove(&giver);
                set.remove(&taker);
            }
            for (member_id, load) in [(giver.1, giver.0 - 1), (taker.1, taker.0 + 1)] {
                by_load.insert((load, member_id));
                if self.partitions_of(member_id, topic.id).is_some() {
                    givers.insert((load, member_id));
                }
            }
            moves += 1;
        }
        moves
    }

    fn move_one(&mut self, giver: &'a str, taker: &'a str, topic: Uuid) {
        let Some(target) = self.targets.get_mut(giver) else { return };
        let Some(index) = target.get_mut(&topic).and_then(BTreeSet::pop_last) else { return };
        if target.get(&topic).is_some_and(BTreeSet::is_empty) {
            target.remove(&topic);
        }
        *self.loads.entry(giver).or_default() -= 1;
        self.give(taker, topic, index);
    }
}
