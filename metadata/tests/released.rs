//! What was released never changes: a metadata store that an earlier release made has been brought
//! to its version by exactly these scripts.

/// Each with the CRC-32C of its text.
const RELEASED: [(&str, &str, u32); 2] = [
    ("sqlite", include_str!("../src/sqlite/migrations/0001_initial.sql"), 0x326f_f25e),
    ("postgres", include_str!("../src/postgres/migrations/0001_initial.sql"), 0x0c82_e4e6),
];

#[test]
fn released_migrations_stay_as_they_are() {
    for (backend, script, expected) in RELEASED {
        let found = crc32c::crc32c(script.as_bytes());
        assert_eq!(
            found, expected,
            "{backend}: a released migration was edited ({found:#010x}); add another one"
        );
    }
}
