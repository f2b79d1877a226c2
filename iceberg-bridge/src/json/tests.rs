use super::*;

fn read(text: &str) -> Tokens {
    let mut tokens = Tokens::default();
    tokens.read(text.as_bytes()).unwrap();
    tokens
}

fn refused(bytes: &[u8]) -> Unreadable {
    Tokens::default().read(bytes).unwrap_err()
}

#[test]
fn tokens_know_their_places() {
    let record = r#" {"a" : [ 1 , {"b":"x\n"} ] , "c":-0.5e1 , "d":null,"e":true} "#;
    let tokens = read(record);
    let source = |index| tokens.source(record.as_bytes(), index);
    assert_eq!(tokens.inside(0), 1..tokens.list.len());
    assert_eq!(source(0), record.trim());
    assert_eq!(source(2), r#"[ 1 , {"b":"x\n"} ]"#);
    assert_eq!((tokens.at(3), source(3)), (Token::Integer(1), "1"));
    assert_eq!(source(4), r#"{"b":"x\n"}"#);
    let Token::Text(text) = tokens.at(6) else { panic!("a text") };
    assert_eq!((tokens.text(text), source(6)), ("x\n", r#""x\n""#));
    assert_eq!(tokens.behind(2), 7);
    assert_eq!((tokens.at(8), source(8)), (Token::Fraction(-5.0), "-0.5e1"));
    assert_eq!((tokens.at(10), tokens.at(12)), (Token::Null, Token::Bool(true)));
}

#[test]
fn numbers_keep_what_64_bits_hold() {
    let cases = [
        ("0", Token::Integer(0)),
        ("-0", Token::Integer(0)),
        ("-999999999999999999", Token::Integer(-999_999_999_999_999_999)),
        ("1000000000000000000", Token::Integer(1_000_000_000_000_000_000)),
        ("9223372036854775807", Token::Integer(i64::MAX)),
        ("-9223372036854775808", Token::Integer(i64::MIN)),
        ("9223372036854775808", Token::HugeNumber),
        ("1.0", Token::Fraction(1.0)),
        ("1E2", Token::Fraction(100.0)),
        ("1e999", Token::HugeNumber),
        ("-1e999", Token::HugeNumber),
        ("1e-999", Token::Fraction(0.0)),
        ("0.1", Token::Fraction(0.1)),
    ];
    for (text, token) in cases {
        assert_eq!(read(&format!("{{\"x\":{text}}}")).at(2), token, "{text}");
    }
}

#[test]
fn what_is_no_json_is_invalid() {
    let cases: [&[u8]; 18] = [
        b"{",
        b"{\"a\"",
        b"{\"a\":",
        b"{\"a\":1",
        b"{\"a\":1,",
        b"{\"a\":1}}",
        b"{\"a\":1} x",
        b"{\"a\":01}",
        b"{\"a\":+1}",
        b"{\"a\":1.}",
        b"{\"a\":NaN}",
        b"{\"a\":Infinity}",
        b"{a:1}",
        b"{\"a\":\"\xff\"}",
        b"{\"a\":\"\\ud800\"}",
        b"{\"a\":\"\\udc00x\"}",
        b"{\"a\":\"\x01\"}",
        b"{\"a\":[1,]}",
    ];
    for bytes in cases {
        assert!(matches!(refused(bytes), Unreadable::Invalid(_)), "{bytes:?}");
    }
}

#[test]
fn excess_is_refused_within_bounds() {
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(Tokens::default().read(nested(NESTING_MAX - 1).as_bytes()).is_ok());
    assert!(matches!(refused(nested(NESTING_MAX).as_bytes()), Unreadable::Excess(_)));
    assert!(matches!(refused("{\"a\":".repeat(100_000).as_bytes()), Unreadable::Excess(_)));
    let long = format!("{{\"a\":[{}1]}}", "1,".repeat(TOKENS_MAX));
    assert!(matches!(refused(long.as_bytes()), Unreadable::Excess(_)));
    let digits = format!("{{\"a\":{}}}", "9".repeat(5000));
    assert!(matches!(refused(digits.as_bytes()), Unreadable::Invalid(_)));
    let text = format!("{{\"a\":\"{}\"}}", "x".repeat(10 << 20));
    assert_eq!(read(&text).list.len(), 3);
}

#[test]
fn the_last_of_doubled_keys_stays() {
    let mut tokens = read(r#"{"a":{"b":1,"b":2},"c":0,"a":1,"\u0061":3}"#);
    assert!(tokens.drop_duplicates());
    let kept = tokens.list.iter().filter_map(|token| match token {
        Token::Key(text, UNSETTLED) => Some(tokens.text(*text)),
        _ => None,
    });
    assert_eq!(kept.collect::<Vec<_>>(), ["b", "c", "a"]);
    assert!(!read(r#"{"a":{"a":1},"b":[{"a":1},{"a":1}]}"#).drop_duplicates());
}

#[test]
fn values_without_a_type() {
    for text in [r#"{"x":[]}"#, r#"{"x":{}}"#, r#"{"x":[null,[{"a":null}]]}"#] {
        assert!(!read(text).has_type(2), "{text}");
    }
    for text in [r#"{"x":[0]}"#, r#"{"x":{"a":""}}"#, r#"{"x":[1e999]}"#] {
        assert!(read(text).has_type(2), "{text}");
    }
}

#[test]
fn objects_are_told_by_their_first_byte() {
    assert!(looks_like_object(b"\t\r\n {"));
    for bytes in [&b""[..], b"[{}]", b"\"{\"", b"\xef\xbb\xbf{}", b"\0{"] {
        assert!(!looks_like_object(bytes));
    }
}
