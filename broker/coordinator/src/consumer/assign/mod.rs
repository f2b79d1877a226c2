//! Server-side assignors: who shall have which partition. Pure, and sticky: what a member had in
//! the last target stays with it as far as the balance allows.

mod range;
#[cfg(test)]
mod tests;
mod uniform;

use super::Partitions;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// An assignor, by its name in `group.remote.assignor`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Assignor {
    /// Of each topic a member gets a row of partitions.
    Range,
    /// Members get equal numbers of partitions over all topics.
    #[default]
    Uniform,
}

/// The names, the default first.
pub(super) const ASSIGNOR_NAMES: &str = "uniform, range";

impl Assignor {
    /// The assignor of a name.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "uniform" => Some(Self::Uniform),
            "range" => Some(Self::Range),
            _ => None,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    /// A target for every member. Each partition of a topic with a subscriber has exactly one
    /// member, which is subscribed to it.
    ///
    /// - `counts`: the number of partitions of every topic that a member is subscribed to.
    pub(super) fn assign<'a>(
        self,
        members: &BTreeMap<&'a str, Subscriber<'_>>,
        counts: &BTreeMap<Uuid, i32>,
    ) -> BTreeMap<&'a str, Partitions> {
        match self {
            Self::Uniform => uniform::assign(members, counts),
            Self::Range => range::assign(members, counts),
        }
    }
}

/// A member, as an assignor sees it.
pub(super) struct Subscriber<'a> {
    /// Topics that it is subscribed to and that exist.
    pub(super) topics: BTreeSet<Uuid>,
    /// Its last target.
    pub(super) previous: &'a Partitions,
}

/// The members that are subscribed to a topic, by id.
fn subscribers<'a>(members: &BTreeMap<&'a str, Subscriber<'_>>, topic: Uuid) -> Vec<&'a str> {
    let subscribed = members.iter().filter(|(_, member)| member.topics.contains(&topic));
    subscribed.map(|(member_id, _)| *member_id).collect()
}

/// Every member, without partitions.
fn nothing<'a>(members: &BTreeMap<&'a str, Subscriber<'_>>) -> BTreeMap<&'a str, Partitions> {
    members.keys().map(|member_id| (*member_id, Partitions::new())).collect()
}
