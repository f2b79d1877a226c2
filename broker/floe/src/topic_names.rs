//! Which names topics may have.

/// The longest name, characters.
const NAME_LEN_MAX: usize = 249;

/// True for `[a-zA-Z0-9._-]{1,249}` but `.` and `..`, as in Kafka.
pub(crate) fn is_valid(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty()
        && name.len() <= NAME_LEN_MAX
        && name != "."
        && name != ".."
        && name.bytes().all(is_allowed)
}

/// Topics of Kafka's own, in which it keeps what Floe has in its metadata store.
const INTERNAL: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// True for the name of a topic of Kafka's own. There are none, and clients may not make, write or
/// shorten them.
pub(crate) fn is_internal(name: &str) -> bool {
    INTERNAL.contains(&name)
}

/// What is wrong with a topic's name, in Kafka's words; `None` for a valid one.
pub(crate) fn complaint(name: &str) -> Option<String> {
    if is_valid(name) {
        return None;
    }
    let why = match name {
        "" => "the empty string is not allowed".to_owned(),
        "." | ".." => format!("'{name}' is not allowed"),
        _ if name.len() > NAME_LEN_MAX => {
            format!("the length of '{name}' is longer than the max allowed length {NAME_LEN_MAX}")
        }
        _ => format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' \
             and '-'"
        ),
    };
    Some(format!("Topic name is invalid: {why}"))
}

/// Two names that are equal after this share their metrics' names in Kafka, which refuses the
/// second.
pub(crate) fn collision_key(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kafkas() {
        for name in ["a", "a.b_c-D9", "...", &"x".repeat(249)] {
            assert!(is_valid(name), "{name}");
        }
        for name in ["", ".", "..", "a b", "a/b", "ä", &"x".repeat(250)] {
            assert!(!is_valid(name), "{name}");
        }
    }

    #[test]
    fn complaints_say_what_is_wrong() {
        assert_eq!(complaint("a"), None);
        for (name, words) in [
            ("", "empty string"),
            ("..", "'..' is not allowed"),
            ("a b", "'a b' contains one or more characters"),
            (&"x".repeat(250), "max allowed length 249"),
        ] {
            assert!(complaint(name).is_some_and(|text| text.contains(words)), "{name}");
        }
    }

    #[test]
    fn kafkas_own_topics_are_known_by_name() {
        assert!(is_internal("__consumer_offsets") && is_internal("__transaction_state"));
        assert!(!is_internal("__consumer_offsets2") && !is_internal("__cluster_metadata"));
    }

    #[test]
    fn dots_and_underscores_collide() {
        assert_eq!(collision_key("a.b"), collision_key("a_b"));
    }
}
