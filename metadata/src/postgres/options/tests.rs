use super::*;
use floe_env::ErrorKind;

#[test]
fn schema_is_taken_out_and_checked() {
    let options = PostgresOptions::parse("postgres://u:p@h:7/d?schema=c_1&connect_timeout=3");
    assert_eq!(options.unwrap().schema(), "c_1");
    let options = PostgresOptions::parse("postgresql://h/d").unwrap();
    assert_eq!((options.schema(), options.is_exclusive), ("floe", true));
    assert!(!options.shared().is_exclusive);
    for wrong in ["", "1a", "a b", "A", "a\"b", &"x".repeat(64)] {
        let url = format!("postgres://h/d?schema={wrong}");
        assert_eq!(PostgresOptions::parse(&url).unwrap_err().kind(), ErrorKind::Invalid);
    }
    for wrong in ["nonsense", "postgres://h/d?no_such=1"] {
        let error = PostgresOptions::parse(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}
