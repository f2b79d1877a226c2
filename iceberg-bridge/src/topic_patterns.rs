//! Which topics have no table unless they ask for one: those that applications keep for themselves.

use std::fmt;
use std::str::FromStr;

/// What Kafka's own tools keep in topics: internal ones, Kafka Streams' changelogs, repartition and
/// foreign-key topics, and Connect's three.
pub const APPLICATIONS_OWN: &str = "_*, *-changelog, *-repartition, \
    *-KTABLE-FK-JOIN-SUBSCRIPTION-*-topic, \
    *-subscription-registration-topic, *-subscription-response-topic, \
    connect-configs, connect-offsets, connect-status";

/// The text of no patterns.
const NONE: &str = "none";

/// Topic names, and patterns in which `*` stands for any characters, separated by commas; or
/// `none`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPatterns(Vec<String>);

impl TopicPatterns {
    /// True for a topic that one of the patterns names.
    pub fn matches(&self, topic: &str) -> bool {
        self.0.iter().any(|pattern| matches(pattern, topic))
    }
}

impl FromStr for TopicPatterns {
    type Err = String;

    /// The error says which pattern no topic name can match.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim() == NONE {
            return Ok(Self::default());
        }
        let patterns = text.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        let is_of_names =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'*');
        let checked = |pattern: &str| match pattern.bytes().all(is_of_names) {
            true => Ok(pattern.to_owned()),
            false => Err(format!("no topic's name matches '{pattern}'")),
        };
        patterns.map(checked).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for TopicPatterns {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => formatter.write_str(NONE),
            false => formatter.write_str(&self.0.join(", ")),
        }
    }
}

/// Takes each part between stars where it comes first: if any way matches, that one does.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        let cases = [
            ("orders", "orders", true),
            ("orders", "orders2", false),
            ("_*", "__consumer_offsets", true),
            ("_*", "a_b", false),
            ("*-changelog", "app-store-changelog", true),
            ("*-changelog", "-changelog", true),
            ("*-changelog", "app-changelog-2", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("*a*a*", "xa", false),
            ("*", "anything", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_applications_keep_for_themselves_is_named() {
        let patterns: TopicPatterns = APPLICATIONS_OWN.parse().unwrap();
        let own = [
            "__consumer_offsets",
            "_schemas",
            "wordcount-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog",
            "wordcount-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition",
            "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
            "app-orders-by-customer-subscription-response-topic",
            "connect-offsets",
        ];
        for topic in own {
            assert!(patterns.matches(topic), "{topic}");
        }
        for others in ["orders", "connect-orders", "changelog", "my_orders"] {
            assert!(!patterns.matches(others), "{others}");
        }
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_refused_by_name() {
        let refused = " a, b c ".parse::<TopicPatterns>().unwrap_err();
        assert!(refused.contains("'b c'"), "{refused}");
        assert_eq!(" a ,, b* ".parse::<TopicPatterns>().unwrap().to_string(), "a, b*");
        assert_eq!("none".parse::<TopicPatterns>().unwrap(), TopicPatterns::default());
    }
}
