//! Who holds which partition of a consumer group, as its members know it, and the check that no
//! partition is ever given to two of them.
//!
//! A member holds what it was told, from the answer on, until it says that it gives it up, joins
//! anew, leaves, or has been silent for a session: its broker counts the session from when a
//! heartbeat came, so it never ends before the one that counts from when it was sent.

use floe_env::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// Topic id and partition, as text.
pub type Place = String;

/// What all members of one group hold.
#[derive(Debug, Default)]
pub struct Assignments {
    held: BTreeMap<String, Held>,
}

#[derive(Debug)]
struct Held {
    places: BTreeSet<Place>,
    until: Instant,
}

impl Assignments {
    /// A member holds these, and nothing else, until its session ends. What is wrong with that.
    pub fn hold(
        &mut self,
        member: &str,
        places: BTreeSet<Place>,
        now: Instant,
        until: Instant,
    ) -> Option<String> {
        let others = self.held.iter().filter(|(other, held)| *other != member && held.until > now);
        let shared = others.flat_map(|(other, held)| {
            held.places.intersection(&places).map(move |place| (other, place))
        });
        let wrong = shared.map(|(other, place)| {
            format!("{place} is assigned to {member} while {other} holds it")
        });
        let wrong = wrong.min();
        self.held.insert(member.to_owned(), Held { places, until });
        wrong
    }

    /// A member gives these up; its session goes on.
    pub fn give_up(&mut self, member: &str, kept: &BTreeSet<Place>) {
        if let Some(held) = self.held.get_mut(member) {
            held.places.retain(|place| kept.contains(place));
        }
    }

    /// A member has nothing any more.
    pub fn release(&mut self, member: &str) {
        self.held.remove(member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_env::Env;
    use std::time::Duration;

    #[tokio::test]
    async fn a_partition_has_one_holder_at_a_time() {
        let start = Env::current().monotonic();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let places = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let mut all = Assignments::default();
        assert_eq!(all.hold("a", places(&["0", "1"]), at(0), at(5)), None);
        assert_eq!(all.hold("b", places(&[]), at(1), at(6)), None);
        let wrong = all.hold("b", places(&["1"]), at(4), at(9)).expect("two holders");
        assert_eq!(wrong, "1 is assigned to b while a holds it");
        all.give_up("a", &places(&["0"]));
        assert_eq!(all.hold("b", places(&["1"]), at(4), at(9)), None);
        assert_eq!(all.hold("c", places(&["0"]), at(5), at(9)), None, "its session is over");
        all.release("b");
        assert_eq!(all.hold("c", places(&["0", "1"]), at(6), at(9)), None);
    }
}
