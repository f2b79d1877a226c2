//! Balance, completeness and stickiness of both assignors over random groups.

use super::*;

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % end
    }
}

struct Case {
    counts: BTreeMap<Uuid, i32>,
    subscriptions: BTreeMap<String, BTreeSet<Uuid>>,
    previous: BTreeMap<String, Partitions>,
}

impl Case {
    fn random(random: &mut Random, is_homogeneous: bool) -> Self {
        let topics = 1 + random.below(4);
        let counts: BTreeMap<Uuid, i32> = (0..topics)
            .map(|topic| (Uuid::from_u128(u128::from(topic)), random.below(9) as i32))
            .collect();
        let members = 1 + random.below(6);
        let subscriptions = (0..members).map(|number| {
            let is_chosen = |random: &mut Random| is_homogeneous || random.below(3) > 0;
            let topics = counts.keys().filter(|_| is_chosen(random)).copied().collect();
            (format!("m{number}"), topics)
        });
        Self { subscriptions: subscriptions.collect(), counts, previous: BTreeMap::new() }
    }

    fn assign(&self, assignor: Assignor) -> BTreeMap<String, Partitions> {
        let nothing = Partitions::new();
        let members = self.subscriptions.iter().map(|(member_id, topics)| {
            let previous = self.previous.get(member_id).unwrap_or(&nothing);
            (member_id.as_str(), Subscriber { topics: topics.clone(), previous })
        });
        let members = members.collect();
        let counts = self
            .counts
            .iter()
            .filter(|(topic, _)| self.subscriptions.values().any(|topics| topics.contains(topic)));
        let counts = counts.map(|(topic, count)| (*topic, *count)).collect();
        let targets = assignor.assign(&members, &counts);
        targets.into_iter().map(|(member_id, target)| (member_id.to_owned(), target)).collect()
    }

    /// Every partition of a topic with a subscriber has one member, which is a subscriber.
    fn check_complete(&self, targets: &BTreeMap<String, Partitions>) {
        assert_eq!(targets.len(), self.subscriptions.len());
        let mut given = BTreeSet::new();
        for (member_id, target) in targets {
            for (topic, indexes) in target {
                assert!(self.subscriptions[member_id].contains(topic), "not subscribed");
                assert!(!indexes.is_empty(), "a topic without partitions");
                for index in indexes {
                    assert!((0..self.counts[topic]).contains(index), "no such partition");
                    assert!(given.insert((*topic, *index)), "given twice");
                }
            }
        }
        let wanted = self
            .counts
            .iter()
            .filter(|(topic, _)| self.subscriptions.values().any(|topics| topics.contains(topic)));
        let wanted: i32 = wanted.map(|(_, count)| *count).sum();
        assert_eq!(i32::try_from(given.len()).expect("few"), wanted, "not all given");
    }
}

fn load(target: &Partitions) -> usize {
    target.values().map(BTreeSet::len).sum()
}

/// No partition could move to a member that has two or more fewer.
fn check_uniform(case: &Case, targets: &BTreeMap<String, Partitions>) {
    for target in targets.values() {
        for topic in target.keys() {
            for (other, topics) in &case.subscriptions {
                let is_better = topics.contains(topic) && load(&targets[other]) + 1 < load(target);
                assert!(!is_better, "{targets:?}");
            }
        }
    }
}

/// Of each topic its subscribers have equal numbers, or one more.
fn check_range(case: &Case, targets: &BTreeMap<String, Partitions>) {
    for topic in case.counts.keys() {
        let subscribed = case.subscriptions.iter().filter(|(_, topics)| topics.contains(topic));
        let counts = subscribed.map(|(id, _)| targets[id].get(topic).map_or(0, BTreeSet::len));
        let counts: Vec<usize> = counts.collect();
        if let (Some(most), Some(least)) = (counts.iter().max(), counts.iter().min()) {
            assert!(most - least <= 1, "{counts:?}");
        }
    }
}

#[test]
fn assignments_are_complete_balanced_and_keep_what_they_can() {
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let mut case = Case::random(&mut random, seed % 2 == 0);
        for assignor in [Assignor::Uniform, Assignor::Range] {
            case.previous = BTreeMap::new();
            let first = case.assign(assignor);
            case.check_complete(&first);
            case.previous = first.clone();
            assert_eq!(case.assign(assignor), first, "without news nothing moves");
            case.subscriptions.insert("new".to_owned(), case.counts.keys().copied().collect());
            let second = case.assign(assignor);
            case.check_complete(&second);
            match assignor {
                Assignor::Uniform => check_uniform(&case, &second),
                Assignor::Range => check_range(&case, &second),
            }
            if seed % 2 == 0 {
                check_only_the_newcomer_gains(&first, &second);
            }
            case.subscriptions.remove("new");
        }
    }
}

/// With equal subscriptions, nobody but the newcomer gets what it did not have.
fn check_only_the_newcomer_gains(
    first: &BTreeMap<String, Partitions>,
    second: &BTreeMap<String, Partitions>,
) {
    for (member_id, target) in second.iter().filter(|(member_id, _)| *member_id != "new") {
        for (topic, indexes) in target {
            let had = first[member_id].get(topic);
            let gained = indexes.iter().any(|index| !had.is_some_and(|had| had.contains(index)));
            assert!(!gained, "{member_id} gained: {first:?} {second:?}");
        }
    }
}

#[test]
fn range_gives_rows_and_the_same_ones_of_equal_topics() {
    let topics: BTreeSet<Uuid> = [1, 2].map(Uuid::from_u128).into();
    let case = Case {
        counts: topics.iter().map(|topic| (*topic, 5)).collect(),
        subscriptions: ["a", "b"].map(|id| (id.to_owned(), topics.clone())).into(),
        previous: BTreeMap::new(),
    };
    let targets = case.assign(Assignor::Range);
    for topic in &topics {
        assert_eq!(targets["a"][topic], [0, 1, 2].into());
        assert_eq!(targets["b"][topic], [3, 4].into());
    }
}
