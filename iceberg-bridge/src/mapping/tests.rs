//! Names, limits and the packed form. What every rule puts into the table is tested where files are
//! written: `encode/json_tests.rs`.

use super::*;
use crate::json::Tokens;
use proptest::prelude::*;

fn folded(records: &[&str]) -> Mapping {
    folded_within(records, MappingLimits::default()).0
}

fn folded_within(records: &[&str], limits: MappingLimits) -> (Mapping, LimitsReached) {
    let (mut mapping, mut reached) = (Mapping::new(), LimitsReached::default());
    for record in records {
        let mut tokens = Tokens::default();
        tokens.read(record.as_bytes()).unwrap();
        tokens.drop_duplicates();
        reached.add(&mapping.fold(&tokens, limits));
    }
    (mapping, reached)
}

/// The columns as text: `a long, b struct<c string>`.
fn columns(mapping: &Mapping) -> String {
    members(mapping, ROOT)
}

fn members(mapping: &Mapping, node: NodeIndex) -> String {
    let member = |index: &NodeIndex| {
        let (name, kind) = (&mapping.node(*index).name, type_text(mapping, *index));
        format!("{name} {kind}")
    };
    let members: Vec<String> = mapping.node(node).fields.columns.iter().map(member).collect();
    members.join(", ")
}

fn type_text(mapping: &Mapping, index: NodeIndex) -> String {
    let node = mapping.node(index);
    match node.kind {
        Kind::Struct => format!("struct<{}>", members(mapping, index)),
        Kind::List => format!("list<{}>", type_text(mapping, node.element.unwrap())),
        kind => kind.name().to_owned(),
    }
}

#[test]
fn case_names_are_unique_at_every_level() {
    let mapping = folded(&[r#"{"id":1,"ID":1,"Id":1,"s":{"a":1,"A":1},"l":[{"é":1,"É":1}]}"#]);
    let expected = "id long, ID__2 long, Id__3 long, s struct<a long, A__2 long>, \
                    l list<struct<é long, É__2 long>>";
    assert_eq!(columns(&mapping), expected);
    let mapping = folded(&[r#"{"x__double":1}"#, r#"{"x":1}"#, r#"{"x":1.5}"#]);
    assert_eq!(columns(&mapping), "x__double long, x long, x__double__2 double");
}

#[test]
fn reserved_names_are_escaped_at_every_level() {
    let mapping =
        folded(&[r#"{"_partition":1,"_KAFKA_x":1,"":1,"_Change_type":1,"s":{"_pos":1}}"#]);
    let expected = "field_partition long, field_KAFKA_x long, field long, \
                    field_Change_type long, s struct<field_pos long>";
    assert_eq!(columns(&mapping), expected);
    assert_eq!(columns(&folded(&[r#"{"_kafka":1,"_files":1}"#])), "_kafka long, _files long");
    // What a suffix makes of a name may be reserved too.
    let mapping =
        folded(&[r#"{"_kafka":1,"_change":1}"#, r#"{"_kafka":"a","_KAFKA":1,"_change":true}"#]);
    let expected = "_kafka long, _change long, field_kafka__string string, \
                    field_KAFKA__2 long, field_change__bool bool";
    assert_eq!(columns(&mapping), expected);
}

#[test]
fn dot_and_control_characters_become_underscores() {
    let mapping = folded(&[r#"{"a.b":1,"a_b":1,"c\u0000\n":1,"d e":1}"#]);
    assert_eq!(columns(&mapping), "a_b long, a_b__2 long, c__ long, d e long");
}

#[test]
fn limits_are_counted_and_hold() {
    let limits = MappingLimits { leaf_columns: 3, object_keys: 3, depth: 2, key_bytes: 4 };
    let (mapping, reached) = folded_within(&[r#"{"a":1,"b":1,"c":1,"d":1}"#], limits);
    assert_eq!(columns(&mapping), "a long, b long, c long");
    assert_eq!(reached, LimitsReached { object_keys: 1, ..LimitsReached::default() });
    let (mapping, reached) = folded_within(&[r#"{"a":{"x":1,"y":1},"b":[1],"c":1}"#], limits);
    assert_eq!(columns(&mapping), "a struct<x long, y long>, b list<long>");
    assert_eq!(reached.leaf_columns, 1);
    let (mapping, reached) = folded_within(&[r#"{"a":{"x":{"y":1}},"b":{"z":1}}"#], limits);
    assert_eq!(columns(&mapping), "b struct<z long>");
    assert_eq!(reached.depth, 1);
    let (mapping, reached) = folded_within(&[r#"{"abcde":1,"abcd":1,"l":[{"x":1}]}"#], limits);
    assert_eq!(columns(&mapping), "abcd long, l__json json");
    assert_eq!((reached.key_bytes, reached.depth), (1, 1));
}

#[test]
fn what_is_taken_back_leaves_nothing() {
    let before = folded(&[r#"{"l":[{"a":1}],"s":{"a":1}}"#]);
    let mut after = before.clone();
    let mut tokens = Tokens::default();
    tokens.read(br#"{"l":[{"a":1,"b":[{"c":1}]},{"a":"x"}]}"#).unwrap();
    after.fold(&tokens, MappingLimits::default());
    assert_eq!(columns(&after), format!("{}, l__json json", columns(&before)));
    after.undo_to(before.node_count());
    assert_eq!(after, before);
}

#[test]
fn the_packed_form_is_as_documented() {
    let mapping = folded(&[r#"{"a":1,"b":2}"#, r#"{"B":{"y":"x"},"l":[1]}"#]);
    let expected = concat!(
        r#"{"v":1,"columns":[[17,0,"long","a"],[18,0,"long","b"],[19,0,"struct","B","B__2"],"#,
        r#"[20,19,"string","y"],[21,0,"list","l"],[22,21,"long"]]}"#
    );
    assert_eq!(mapping.pack(), expected);
    assert_eq!(Mapping::unpack(expected).unwrap(), mapping);
}

#[test]
fn a_packed_form_that_makes_no_sense_is_refused() {
    let cases = [
        "",
        "{}",
        r#"{"v":2,"columns":[]}"#,
        r#"{"v":1,"columns":[[16,0,"long","a"]]}"#,
        r#"{"v":1,"columns":[[17,3,"long","a"]]}"#,
        r#"{"v":1,"columns":[[17,0,"date","a"]]}"#,
        r#"{"v":1,"columns":[[17,0,"long"]]}"#,
        r#"{"v":1,"columns":[[17,0,"long","a"],[17,0,"long","b"]]}"#,
        r#"{"v":1,"columns":[[17,0,"long","a"],[18,0,"long","a"]]}"#,
        r#"{"v":1,"columns":[[17,0,"struct","a"]]}"#,
        r#"{"v":1,"columns":[[17,0,"list","a"]]}"#,
        r#"{"v":1,"columns":[[17,0,"long","a"],[18,17,"long","a"]]}"#,
        r#"{"v":1,"columns":[[99999999999,0,"long","a"]]}"#,
        r#"{"v":1,"columns":[7]}"#,
    ];
    for text in cases {
        assert!(Mapping::unpack(text).is_err(), "{text}");
    }
}

/// Any JSON value, small.
fn value() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-9.0..9.0).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-cA-C._]{0,2}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn every_mapping_survives_packing(values in prop::collection::vec(value(), 0..12)) {
        let records: Vec<String> =
            values.iter().map(|value| serde_json::json!({ "x": value }).to_string()).collect();
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        let limits = MappingLimits { leaf_columns: 20, object_keys: 3, depth: 5, key_bytes: 9 };
        let (mapping, _) = folded_within(&records, limits);
        prop_assert!(mapping.leaves() <= 20);
        prop_assert_eq!(Mapping::unpack(&mapping.pack()).unwrap(), mapping.clone());
        crate::schema::iceberg_schema(&mapping).unwrap();
        crate::schema::arrow_schema(&mapping).unwrap();
    }
}
