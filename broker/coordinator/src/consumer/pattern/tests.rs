//! Where RE2 and the `regex` crate differ, RE2 counts.

use super::*;

fn matches(source: &str, topic: &str) -> bool {
    TopicPattern::new(source).expect("right").matches(topic)
}

#[test]
fn the_whole_name_must_match_whatever_the_anchors() {
    for source in ["ab", "^ab$", r"\Aab\z", "^a|ab", "(?i)AB", "(?s:a).", "a(?P<x>b)"] {
        assert!(matches(source, "ab"), "{source}");
        assert!(!matches(source, "abc") && !matches(source, "xab"), "{source}");
    }
}

#[test]
fn classes_are_those_of_re2() {
    for (source, inside, outside) in [
        ("[+--]", "+,-", "./"),
        ("[--/]", "-./", ",0+"),
        ("[a&&b]", "a&b", "c"),
        ("[a~~b]", "a~b", "c"),
        ("[a-]", "a-", "b"),
        ("[-a]", "a-", "b"),
        ("[]a]", "]a", "["),
        ("[^]a]", "b[", "]a"),
        ("[[a]", "[a", "b"),
        ("[[:digit:]_]", "09_", "a:["),
        (r"[\d-z]", "0-z", "ay"),
        (r"[\pL-z]", "a-z", "0."),
        (r"[\PL-z]", "0-z", "a"),
        (r"[\p{L}-_.]", "a-_.", "0/"),
        (r"[\p{L}--/]", "a-./", "0"),
        (r"[\pL]", "a", "-0"),
        (r"[\]-a]", "]^_`a", "\\b"),
        (r"\<", "<", "a"),
    ] {
        for character in inside.chars() {
            assert!(matches(source, &character.to_string()), "{source} and {character}");
        }
        for character in outside.chars() {
            assert!(!matches(source, &character.to_string()), "{source} and {character}");
        }
    }
}

#[test]
fn what_only_the_crate_would_take_is_refused() {
    for (source, words) in [
        ("(?x)a b", "invalid or unsupported Perl syntax"),
        ("(?u:a)", "invalid or unsupported Perl syntax"),
        ("(?i-R)a", "invalid or unsupported Perl syntax"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("[a--b]", "invalid character class range"),
        ("[[:foo:]]", "invalid character class range"),
        ("[a", "missing closing ]"),
        ("[a-", "missing closing ]"),
        ("[", "missing closing ]"),
    ] {
        assert_eq!(TopicPattern::new(source).err(), Some(words), "{source}");
    }
}

#[test]
fn a_large_expression_is_refused() {
    let most = "a".repeat(SOURCE_BYTES_MAX);
    assert_eq!(TopicPattern::new(&format!("{most}a")).err(), Some("expression too large"));
    assert_eq!(TopicPattern::new("(a{1000}){1000}").err(), Some("expression too large"));
    let brackets = format!("[{}a]", "[:".repeat(SOURCE_BYTES_MAX / 2 - 2));
    assert!(matches(&brackets, ":"), "in linear time");
}

/// The crate's limit counts only what comes after the classes have been expanded: these two took
/// 200 MB and half a minute.
#[test]
#[expect(clippy::disallowed_methods, reason = "how long it really takes is what is tested")]
fn a_small_expression_with_large_classes_is_refused_at_once() {
    let began = std::time::Instant::now();
    let words = r"\w".repeat(SOURCE_BYTES_MAX / 2 - 1);
    let folded = format!("(?i){}", "[!-\u{1E943}]".repeat(8_190));
    for source in [words, folded] {
        assert_eq!(TopicPattern::new(&source).err(), Some(TOO_LARGE));
    }
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(1), "{took:?}");
}

#[test]
fn classes_of_unicode_are_for_short_expressions() {
    for source in [r"\pL+", r"\p{Greek}?ab", r"(?i)[!-\x{1E943}]+", "ab|\u{e9}", r"\w\w", r"a\Bb"] {
        assert!(matches(source, "ab"), "{source}");
    }
    let long = format!("{}|ab", r"\pL".repeat(UNICODE_SOURCE_BYTES_MAX / 3));
    assert_eq!(TopicPattern::new(&long).err(), Some(TOO_LARGE));
    assert!(!matches(r"\w", "-") && matches(r"\W", "-") && matches("(?i)K", "k"));
    assert_eq!(TopicPattern::new(r"\p{None}").err(), Some("invalid character class range"));
}
