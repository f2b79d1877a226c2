//! From topic names to table names.
//!
//! Lower-cased; each run of characters outside `[a-z0-9_]` becomes one `_`; `t_` stands before a
//! leading digit; at most 120 bytes. A name that another topic has taken gets `_` and 8 hex digits
//! of the topic id. A name is chosen once, when the table is made, and stored.

use kfs::TopicId;

/// The longest table name.
pub const NAME_BYTES_MAX: usize = 120;
/// Hex digits of the topic id that tell two topics of one name apart.
const SUFFIX_DIGITS: usize = 8;
/// A topic id has 32 hex digits, which make this many different suffixes.
const SUFFIXES: usize = 32 / SUFFIX_DIGITS;

/// The names to try for a topic's table, in order: the plain one, then those with digits of the
/// topic id.
pub fn candidates(topic_name: &str, topic: TopicId) -> Vec<String> {
    let plain = plain_name(topic_name);
    let digits = topic.0.simple().to_string();
    let stem = &plain[..plain.len().min(NAME_BYTES_MAX - 1 - SUFFIX_DIGITS)];
    let suffixed = (0..SUFFIXES).map(|at| {
        let from = at * SUFFIX_DIGITS;
        format!("{stem}_{}", &digits[from..from + SUFFIX_DIGITS])
    });
    std::iter::once(plain.clone()).chain(suffixed).collect()
}

/// The table name of a topic whose name nobody else has taken.
pub fn plain_name(topic_name: &str) -> String {
    let mut name = String::with_capacity(topic_name.len() + 2);
    let mut in_run = false;
    for character in topic_name.chars() {
        let lower = character.to_ascii_lowercase();
        if lower.is_ascii_lowercase() || lower.is_ascii_digit() || lower == '_' {
            if name.is_empty() && lower.is_ascii_digit() {
                name.push_str("t_");
            }
            name.push(lower);
            in_run = false;
        } else if !in_run {
            name.push('_');
            in_run = true;
        }
    }
    name.truncate(NAME_BYTES_MAX);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn topic() -> TopicId {
        TopicId(Uuid::from_u128(0x0123_4567_89ab_cdef_0011_2233_4455_6677))
    }

    #[test]
    fn names_follow_the_rules() {
        let cases = [
            ("orders", "orders"),
            ("Shop.Orders-EU", "shop_orders_eu"),
            ("a.-.b", "a_b"),
            ("a__b", "a__b"),
            ("2026-events", "t_2026_events"),
            ("-", "_"),
            (".x.", "_x_"),
        ];
        for (topic_name, table) in cases {
            assert_eq!(plain_name(topic_name), table);
        }
    }

    #[test]
    fn a_taken_name_gets_digits_of_the_topic_id() {
        let names = candidates("orders", topic());
        assert_eq!(names[..2], ["orders", "orders_01234567"]);
        assert_eq!(names.len(), 5);
    }

    proptest! {
        #[test]
        fn every_candidate_is_portable(name in "[a-zA-Z0-9._-]{1,249}") {
            for candidate in candidates(&name, topic()) {
                prop_assert!(!candidate.is_empty() && candidate.len() <= NAME_BYTES_MAX);
                prop_assert!(candidate.bytes().all(|b| b.is_ascii_lowercase()
                    || b.is_ascii_digit() || b == b'_'));
                prop_assert!(!candidate.as_bytes()[0].is_ascii_digit());
            }
        }
    }
}
