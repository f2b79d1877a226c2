//! What raises the group epoch, and the target that follows.

use super::assign::{Assignor, Subscriber};
use super::live::Turn;
use super::partitions::Partitions;
use super::pattern::Matches;
use super::record::Member;
use super::{ConsumerGroup, TopicDirectory};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// How soon a new target is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Once the interval is over: members that come together share one target.
    Batched,
    /// Now: the sender cannot go on without it.
    Now,
}

impl ConsumerGroup {
    /// After the members of this turn are as they shall be: looks their topics up, raises the group
    /// epoch and computes the target, each where it is due.
    pub(super) fn advance(&mut self, topics: &TopicDirectory, urgency: Urgency, turn: &mut Turn) {
        self.look_up_topics(topics, turn);
        self.raise_epoch(turn);
        let is_behind = self.record.epoch > self.record.assignment_epoch;
        if is_behind && (urgency == Urgency::Now || self.is_interval_over(turn)) {
            self.assign(topics, turn);
        }
    }

    pub(super) fn raise_epoch(&mut self, turn: &Turn) {
        if turn.is_epoch_due {
            self.record.epoch = self.record.epoch.saturating_add(1);
            self.live.is_dirty = true;
        }
    }

    /// The assignor that most members ask for; the first in the alphabet of equals, and the default
    /// if nobody asks.
    pub(super) fn preferred_assignor(&self) -> Assignor {
        let mut votes: BTreeMap<Assignor, usize> = BTreeMap::new();
        for assignor in self.record.members.values().filter_map(|member| member.server_assignor) {
            *votes.entry(assignor).or_default() += 1;
        }
        let most = votes.values().max().copied();
        let first = votes.into_iter().find(|(_, count)| Some(*count) == most);
        first.map(|(assignor, _)| assignor).unwrap_or_default()
    }

    fn is_interval_over(&self, turn: &Turn) -> bool {
        let interval_ms = i64::from(self.config.assignment_interval_ms);
        self.live
            .assigned_at_ms
            .is_none_or(|at_ms| at_ms.saturating_add(interval_ms) <= turn.now_ms)
    }

    /// Looks the topics of all members up, if they or the directory have changed.
    fn look_up_topics(&mut self, directory: &TopicDirectory, turn: &mut Turn) {
        let is_seen = self.live.seen_revision == Some(directory.revision());
        if is_seen && !turn.is_subscription_changed {
            return;
        }
        self.match_patterns(directory);
        let mut topics = BTreeMap::new();
        for member in self.record.members.values() {
            topics.extend(self.topics_of(member, directory));
        }
        if topics != self.record.topics {
            self.record.topics = topics;
            turn.is_epoch_due = true;
        }
        self.live.seen_revision = Some(directory.revision());
    }

    /// Makes sure that for every regular expression it is known what it matches.
    fn match_patterns(&mut self, directory: &TopicDirectory) {
        let members = self.record.members.values();
        let wanted: BTreeSet<&String> =
            members.filter_map(|member| member.topic_regex.as_ref()).collect();
        self.live.matches.retain(|source, _| wanted.contains(source));
        for source in wanted {
            let known = self.live.matches.get(source);
            if known.is_none_or(|known| known.revision() != directory.revision()) {
                self.live.matches.insert(source.clone(), Matches::find(source, directory));
            }
        }
    }

    /// The topics that exist of those that a member is subscribed to, with their partitions.
    fn topics_of(&self, member: &Member, directory: &TopicDirectory) -> BTreeMap<Uuid, i32> {
        let named = member.topic_names.iter().filter_map(|name| directory.find(name));
        let mut topics: BTreeMap<Uuid, i32> = named.collect();
        let matched = member.topic_regex.as_ref().and_then(|it| self.live.matches.get(it));
        if let Some(matched) = matched {
            topics.extend(matched.topics());
        }
        topics
    }

    fn assign(&mut self, directory: &TopicDirectory, turn: &Turn) {
        let members = self.record.members.iter().map(|(member_id, member)| {
            let topics = self.topics_of(member, directory).into_keys().collect();
            (member_id.as_str(), Subscriber { topics, previous: &member.target })
        });
        let members: BTreeMap<&str, Subscriber<'_>> = members.collect();
        let targets = self.preferred_assignor().assign(&members, &self.record.topics);
        let targets: Vec<(String, Partitions)> =
            targets.into_iter().map(|(member_id, target)| (member_id.to_owned(), target)).collect();
        for (member_id, target) in targets {
            if let Some(member) = self.record.members.get_mut(&member_id) {
                member.target = target;
            }
        }
        self.record.assignment_epoch = self.record.epoch;
        self.live.assigned_at_ms = Some(turn.now_ms);
        self.live.is_dirty = true;
    }
}
