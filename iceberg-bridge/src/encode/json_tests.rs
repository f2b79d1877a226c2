//! Every rule of `MAPPING.md`, by its name: records in, rows of a data file out.

use super::*;
use crate::tests::json_rows::json_rows;
use kfs::{BatchBuilder, NewRecord};
use serde_json::{Value, json};

const NO_COLUMNS: &str = "{}";

fn batch_of(values: &[Option<&[u8]>]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for value in values {
        let record = NewRecord { timestamp_ms: 0, key: None, value: *value, headers: &[] };
        builder.push(&record).unwrap();
    }
    builder.build().unwrap()
}

fn encoder_of(format: ValueFormat) -> Encoder {
    let config = EncoderConfig { format, limits: MappingLimits::default() };
    Encoder::new(&config, Mapping::new()).unwrap()
}

fn rows_of(encoder: &mut Encoder, values: &[Option<&[u8]>]) -> Vec<Value> {
    let count = i64::try_from(values.len()).unwrap();
    encoder.append(0, &[batch_of(values)], 0, count).unwrap();
    let files = encoder.finish_files().unwrap();
    assert_eq!(files.len(), 1);
    json_rows(files[0].bytes.clone()).into_iter().map(|(_, row)| row).collect()
}

/// Rows of records in a file of their own, without columns that are null.
fn rows(values: &[&str]) -> Vec<Value> {
    let values: Vec<_> = values.iter().map(|value| Some(value.as_bytes())).collect();
    rows_of(&mut encoder_of(ValueFormat::Auto), &values)
}

/// Rows of records `{"x": value}`.
fn rows_of_x(values: &[&str]) -> Vec<Value> {
    let records: Vec<String> = values.iter().map(|value| format!("{{\"x\":{value}}}")).collect();
    rows(&records.iter().map(String::as_str).collect::<Vec<_>>())
}

fn rescued(values: &str) -> Value {
    json!({ "_kafka_rescued": format!("{{\"values\":{values}}}") })
}

#[test]
fn object_becomes_columns() {
    assert_eq!(rows(&[r#"{"a":1}"#]), [json!({"a": 1})]);
}

#[test]
fn raw_values_stay() {
    for text in ["[1]", "7", "\"text\"", "text", "", "[{\"a\":1}]", "null"] {
        assert_eq!(rows(&[text]), [json!({ "_kafka_value": text })]);
    }
    let mut raw = encoder_of(ValueFormat::Raw);
    let object = r#"{"a":1}"#;
    let shown = rows_of(&mut raw, &[Some(object.as_bytes())]);
    assert_eq!(shown, [json!({ "_kafka_value": object })]);
    assert_eq!(raw.mapping().leaves(), 0);
}

#[test]
fn null_is_null_everywhere() {
    let shown = rows_of(&mut encoder_of(ValueFormat::Auto), &[Some(b"{\"a\":1}"), None]);
    assert_eq!(shown, [json!({"a": 1}), json!({})]);
}

#[test]
fn hollow_objects_are_no_tombstones() {
    for text in [NO_COLUMNS, r#"{"a":null}"#, r#" { "a" : null , "b" : null } "#] {
        assert_eq!(rows(&[text, r#"{"a":1}"#, text])[2], json!({ "_kafka_value": text }));
    }
}

#[test]
fn broken_json_stays_with_the_reason() {
    let digits = format!("{{\"a\":{}}}", "1".repeat(4_301));
    let hostile: [&[u8]; 8] = [
        digits.as_bytes(),
        b"{\"a\":1",
        b"{\"a\":\"\xff\"}",
        b"{\"a\":\"\\ud800\"}",
        b"{\"a\":1}\0",
        b"{\"a\":\"\0\"}",
        b"{\"\xc3\x28\":1}",
        b"{'a':1}",
    ];
    for bytes in hostile {
        let mut encoder = encoder_of(ValueFormat::Auto);
        let shown = rows_of(&mut encoder, &[Some(b"{\"b\":1}"), Some(bytes)]).remove(1);
        assert_eq!(shown["_kafka_error"]["class"], "json", "{bytes:?}");
        assert!(shown["_kafka_error"]["message"].as_str().unwrap().contains("at index"));
        assert_eq!(shown["_kafka_value"], String::from_utf8_lossy(bytes).as_ref());
        assert_eq!(encoder.counts().undecodable_rows, 1);
        assert_eq!(encoder.mapping().leaves(), 1, "a broken record makes no columns");
    }
}

#[test]
fn a_number_of_many_digits_is_rescued_up_to_a_limit() {
    let number = "1".repeat(4_300);
    assert_eq!(rows_of_x(&[&number]), [rescued(&format!("{{\"/x\":{number}}}"))]);
}

#[test]
fn excess_stays_with_the_reason() {
    let deep = "{\"a\":".repeat(100_000);
    let shown = rows(&[&deep]).remove(0);
    assert_eq!(shown["_kafka_error"]["class"], "limit");
    assert_eq!(shown["_kafka_value"], deep);
}

#[test]
fn whitespace_does_not_matter() {
    assert_eq!(rows(&[" \r\n\t{ \"a\" : [ 1 , 2 ] } \n"]), [json!({"a": [1, 2]})]);
}

#[test]
fn long_double_string_bool_struct_and_list() {
    assert_eq!(rows_of_x(&["1"]), [json!({"x": 1})]);
    assert_eq!(rows_of_x(&["1.5", "1e3"]), [json!({"x": 1.5}), json!({"x": 1000.0})]);
    assert_eq!(rows_of_x(&["\"2020-01-01\""]), [json!({"x": "2020-01-01"})]);
    assert_eq!(rows_of_x(&["true"]), [json!({"x": true})]);
    assert_eq!(rows_of_x(&[r#"{"y":1}"#]), [json!({"x": {"y": 1}})]);
    assert_eq!(rows_of_x(&[r#"["a",null]"#]), [json!({"x": ["a", null]})]);
    let nested = r#"[{"a":[{"b":[[1],[]]}]},null,{"c":{"d":true}}]"#;
    let expected = json!({"x": [
        {"a": [{"b": [[1], []]}]}, null, {"c": {"d": true}},
    ]});
    assert_eq!(rows_of_x(&[nested]), [expected]);
}

#[test]
fn fraction_makes_a_second_column_and_coalesce_is_right() {
    let shown = rows_of_x(&["1", "1.5", "2", "null"]);
    let expected = [json!({"x": 1}), json!({"x__double": 1.5}), json!({"x": 2, "x__double": 2.0})];
    assert_eq!(shown[..3], expected);
}

#[test]
fn whole_numbers_join_a_first_fraction() {
    assert_eq!(rows_of_x(&["1.5", "2"]), [json!({"x": 1.5}), json!({"x": 2.0})]);
}

#[test]
fn beyond_2_53_keeps_its_text() {
    let shown = rows_of_x(&["1.5", "9007199254740993", "9007199254740992"]);
    let text = r#"{"values":{"/x":9007199254740993}}"#;
    assert_eq!(shown[1], json!({"x": 9007199254740992.0, "_kafka_rescued": text}));
    assert_eq!(shown[2], json!({"x": 9007199254740992.0}));
    let shown = rows_of_x(&["1", "1.5", "9007199254740993"]);
    assert_eq!(shown[2]["x"], json!(9007199254740993_i64), "the long has it as it is");
}

#[test]
fn beyond_64_bits_is_rescued() {
    for text in ["9223372036854775808", "-9223372036854775809", "1e999", "-1e999"] {
        assert_eq!(rows_of_x(&[text]), [rescued(&format!("{{\"/x\":{text}}}"))]);
    }
    assert_eq!(rows_of_x(&["9223372036854775807"]), [json!({"x": i64::MAX})]);
    assert_eq!(rows_of_x(&["-9223372036854775808"]), [json!({"x": i64::MIN})]);
}

#[test]
fn conflict_makes_a_column_beside_it() {
    let values = ["1", "\"a\"", "true", r#"{"y":1}"#, "[1]", "2.5", "3"];
    let expected = [
        json!({"x": 1}),
        json!({"x__string": "a"}),
        json!({"x__bool": true}),
        json!({"x__struct": {"y": 1}}),
        json!({"x__list": [1]}),
        json!({"x__double": 2.5}),
        json!({"x": 3, "x__double": 3.0}),
    ];
    assert_eq!(rows_of_x(&values), expected);
    assert_eq!(rows_of_x(&["\"a\"", "1"])[1], json!({"x__long": 1}));
    let inside = rows(&[r#"{"s":{"x":1}}"#, r#"{"s":{"x":"a"}}"#]);
    assert_eq!(inside[1], json!({"s": {"x__string": "a"}}));
}

#[test]
fn list_conflict_makes_json_text() {
    let mixed = r#"[1, "a"]"#;
    assert_eq!(rows_of_x(&[mixed]), [json!({ "x__json": mixed })]);
    let cases = [
        ("[1]", "[1.5]"),
        ("[1]", "[9223372036854775808]"),
        ("[1.5]", "[9007199254740993]"),
        ("[1]", "[[1]]"),
        (r#"[{"y":1}]"#, r#"[{"y":"a","z":1}]"#),
        (r#"[{"y":[1]}]"#, r#"[{"y":[true]}]"#),
        (r#"[[1]]"#, r#"[["a"]]"#),
    ];
    for (first, second) in cases {
        let shown = rows_of_x(&[first, second, first, "[]"]);
        assert_eq!(shown[1], json!({ "x__json": second }), "{first} then {second}");
        assert_eq!(shown[2], shown[0]);
        assert_eq!(shown[3], json!({"x": []}));
    }
    let grown = rows_of_x(&[r#"[{"y":1}]"#, r#"[{"z":"a"}]"#]);
    assert_eq!(grown[1], json!({"x": [{"z": "a"}]}));
    assert_eq!(rows_of_x(&[mixed, "1"])[1], json!({"x": 1}), "the plain name is still free");
}

#[test]
fn list_of_numbers_is_seen_whole_before_its_type_is_chosen() {
    assert_eq!(rows_of_x(&["[1,2.5]"]), [json!({"x": [1.0, 2.5]})]);
    let shown = rows_of_x(&[r#"[{"y":1},{"y":2.5}]"#]);
    assert_eq!(shown, [json!({"x": [{"y": 1.0}, {"y": 2.5}]})]);
    let huge = "[1.5,9007199254740993]";
    assert_eq!(rows_of_x(&[huge]), [json!({ "x__json": huge })]);
}

#[test]
fn untyped_values_make_no_column() {
    for text in ["[]", "{}", "[null]", "[[],{}]", r#"{"y":{}}"#] {
        assert_eq!(rows_of_x(&[text]), [rescued(&format!("{{\"/x\":{text}}}"))]);
    }
    assert_eq!(rows_of_x(&["[1]", "[]"])[1], json!({"x": []}));
    assert_eq!(rows_of_x(&["[1]", "[null]"])[1], json!({"x": [null]}));
    assert_eq!(rows_of_x(&[r#"{"y":1}"#, "{}"])[1], json!({"x": {}}));
    assert_eq!(rows_of_x(&["[]", "[\"a\"]"])[1], json!({"x": ["a"]}), "typed when it is known");
}

#[test]
fn duplicate_keys_last_wins_and_the_record_is_rescued() {
    let twice = r#"{"x":1,"y":{"z":1,"z":"a"},"x":2}"#;
    let record = json!({ "record": twice }).to_string();
    let expected = json!({"x": 2, "y": {"z": "a"}, "_kafka_rescued": record});
    assert_eq!(rows(&[twice]), [expected]);
    for first in [r#"{"x":1}"#, r#"{"x":"a","y":1}"#, r#"{"y":1,"x":1}"#] {
        for twice in [r#"{"x":1,"x":2}"#, r#"{"x":null,"x":2}"#, r#"{"y":0,"x":1,"y":2,"x":2}"#] {
            let shown = rows(&[first, twice]).remove(1);
            let rescued: Value =
                serde_json::from_str(shown["_kafka_rescued"].as_str().unwrap()).unwrap();
            assert_eq!(rescued["record"], twice);
            let column = if first.contains("\"a\"") { "x__long" } else { "x" };
            assert_eq!(shown[column], 2);
        }
    }
    let in_list = r#"{"x":[{"a":1,"a":null}]}"#;
    let members =
        format!("\"values\":{{\"/x\":[{{\"a\":1,\"a\":null}}]}},\"record\":{}", json!(in_list));
    assert_eq!(rows(&[in_list]), [json!({ "_kafka_rescued": format!("{{{members}}}") })]);
}

/// Nothing of the record is lost that a column could have had.
#[test]
fn doubled_keys_that_are_null_and_have_no_column_are_passed_over() {
    let doubled = r#"{"x":null,"x":null,"y":1}"#;
    assert_eq!(rows(&[r#"{"y":0}"#, doubled])[1], json!({"y": 1}));
    let rescued = json!({ "record": doubled }).to_string();
    assert_eq!(rows(&[doubled]), [json!({"y": 1, "_kafka_rescued": rescued})], "y is new");
}

#[test]
fn rescued_values_are_named_by_json_pointer() {
    let shown = rows(&[r#"{"a/b":{"c~\"":1e999,"d":1},"e":[]}"#]).remove(0);
    assert_eq!(shown["a/b"], json!({"d": 1}));
    let rescued = shown["_kafka_rescued"].as_str().unwrap();
    assert_eq!(rescued, r#"{"values":{"/a~1b/c~0\"":1e999,"/e":[]}}"#);
}

#[test]
fn keys_beyond_the_limit_are_rescued() {
    let members: Vec<String> = (0..150).map(|n| format!("\"k{n}\":{n}")).collect();
    let record = format!("{{{}}}", members.join(","));
    let mut encoder = encoder_of(ValueFormat::Auto);
    let shown = rows_of(&mut encoder, &[Some(record.as_bytes())]).remove(0);
    assert_eq!(shown["k99"], 99);
    let rescued: Value = serde_json::from_str(shown["_kafka_rescued"].as_str().unwrap()).unwrap();
    assert_eq!(rescued["values"].as_object().unwrap().len(), 50);
    assert_eq!(rescued["values"]["/k100"], 100);
    assert_eq!(encoder.counts().limits.object_keys, 50);
    assert_eq!(encoder.counts().rescued_rows, 1);
}

#[test]
fn long_texts_and_keys_stay_whole() {
    let (text, key) = ("x".repeat(10 << 20), "k".repeat(1 << 20));
    let shown = rows(&[&format!("{{\"x\":\"{text}\",\"{key}\":1}}")]).remove(0);
    assert_eq!(shown["x"], text);
    assert!(shown["_kafka_rescued"].as_str().unwrap().len() > key.len());
}

#[test]
fn new_columns_are_null_in_the_rows_before_and_a_grown_file_ends() {
    let mut encoder = encoder_of(ValueFormat::Auto);
    let first = vec![Some(&b"{\"a\":1}"[..]); 9000];
    let second: Vec<String> = (0..3).map(|n| format!("{{\"a\":{n},\"b\":[{n}]}}")).collect();
    let second: Vec<_> = second.iter().map(|text| Some(text.as_bytes())).collect();
    let shown = [batch_of(&first), batch_of(&second)];
    encoder.append(0, &shown[..1], 0, 9000).unwrap();
    encoder.append(0, &shown[1..], 0, 3).unwrap();
    let files = encoder.finish_files().unwrap();
    let counted: Vec<u64> = files.iter().map(|file| file.rows).collect();
    assert_eq!(counted, [8192, 811], "what was encoded already has no column b");
    let last = json_rows(files[1].bytes.clone());
    assert_eq!(last[0].1, json!({"a": 1}));
    assert_eq!(last[810].1, json!({"a": 2, "b": [2]}));
}

#[test]
fn statistics_and_bounds_fit_the_columns() {
    let mut encoder = encoder_of(ValueFormat::Auto);
    let long = format!("{{\"big\":\"{}\",\"t\":\"zz\",\"n\":-1,\"d\":0.0}}", "b".repeat(33 << 10));
    let short = br#"{"big":"a","t":"a","n":7,"d":2.5,"l":[1,"x"],"s":{"n":1},"b":true}"#;
    encoder.append(0, &[batch_of(&[Some(long.as_bytes()), Some(short)])], 0, 2).unwrap();
    let file = encoder.finish_files().unwrap().remove(0);
    let schema = FileShape::of(encoder.mapping()).unwrap().schema;
    let id = |name: &str| {
        let field = schema.field_with_name(name).unwrap();
        field.metadata()["PARQUET:field_id"].parse::<i32>().unwrap()
    };
    let text = Bounds::Text { min: "a".to_owned(), max: Some("zz".to_owned()) };
    assert_eq!(file.bounds[&id("t")], text);
    assert_eq!(file.bounds[&id("n")], Bounds::Whole { min: -1, max: 7 });
    assert_eq!(file.bounds[&id("d")], Bounds::Double { min: -0.0, max: 2.5 });
    for unbounded in ["big", "l__json", "s", "b", "_kafka_rescued", "_kafka_value"] {
        assert!(!file.bounds.contains_key(&id(unbounded)), "{unbounded}");
    }
    assert_eq!((file.nulls[&id("l__json")], file.nulls[&id("b")]), (1, 1));
    let url = "memory:///x.parquet".to_owned();
    let entry = crate::files::data_file(&file, url).unwrap();
    assert_eq!(entry.lower_bounds().len(), file.bounds.len());
}

#[test]
fn a_wide_sparse_table_takes_bounded_memory_and_one_file() {
    let mut encoder = encoder_of(ValueFormat::Auto);
    let config = EncoderConfig {
        format: ValueFormat::Auto,
        limits: MappingLimits { object_keys: 1000, ..MappingLimits::default() },
    };
    encoder = Encoder::new(&config, encoder.mapping().clone()).unwrap();
    let wide: Vec<String> = (0..1000).map(|n| format!("\"k{n}\":1")).collect();
    let wide = format!("{{{}}}", wide.join(","));
    encoder.append(0, &[batch_of(&[Some(wide.as_bytes())])], 0, 1).unwrap();
    let narrow: Vec<String> = (0..6000).map(|n| format!("{{\"k{}\":1}}", n % 1000)).collect();
    let narrow: Vec<_> = narrow.iter().map(|text| Some(text.as_bytes())).collect();
    encoder.append(0, &[batch_of(&narrow)], 0, 6000).unwrap();
    // A column's encoder takes about 75 KB, however few values it has.
    assert!(encoder.memory_bytes() < 96 << 20, "{} bytes", encoder.memory_bytes());
    let files = encoder.finish_files().unwrap();
    assert_eq!(files.iter().map(|file| file.rows).collect::<Vec<_>>(), [6001]);
    assert!(files[0].bytes.len() < 4 << 20);
}

/// 100,000 records over 20 years.
#[test]
fn twenty_years_cost_nine_files() {
    let mut encoder = encoder_of(ValueFormat::Auto);
    for part in 0..100_i64 {
        let mut builder = BatchBuilder::new().base_offset(part * 1000);
        for number in 0..1000 {
            let value = format!("{{\"n\":{number},\"text\":\"some text {number}\"}}");
            let timestamp_ms = (part * 1000 + number) * 7_919 * 1000 * 60 % (20 * 365 * DAY_MS);
            let value = Some(value.as_bytes());
            let record = NewRecord { timestamp_ms, key: None, value, headers: &[] };
            builder.push(&record).unwrap();
        }
        let batch = builder.build().unwrap();
        encoder.append(0, &[batch], part * 1000, (part + 1) * 1000).unwrap();
    }
    let files = encoder.finish_files().unwrap();
    assert_eq!(files.len(), DAYS_MAX + 1);
    assert_eq!(files.iter().map(|file| file.rows).sum::<u64>(), 100_000);
}
