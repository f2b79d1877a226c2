"""JSON topics as tables with columns: DuckDB, PyIceberg and Polars read the same rows, rule by rule of
iceberg-bridge/MAPPING.md."""
import json
import math

import polars
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import load_catalog

from kit import CLIENT_SECONDS, duckdb_on, send

# Each rule as a record; what a row shows beside the ten columns is in SHOWN, in the same order.
RECORDS = [
    {"n": 1, "text": "2020-01-01", "flag": True, "nested": {"y": 1, "Y": "other case"}, "list": [1, None, 3]},
    {"n": 1.5, "text": 7, "list": [1.5], "objects": [{"a": 1}, None, {"b": [True]}]},
    {"n": 2, "nested": {"y": 2.5, "deep": {"er": "x"}}, "list": [], "ID": 1, "id": 2, "a.b": "dot"},
    {"n": [1], "_partition": 5, "": "empty", "_kafka_offset": 6, "\u00fcml\u00e4ut": "\u65e5\u672c"},
]
SHOWN = [
    {"n": 1, "text": "2020-01-01", "flag": True, "nested": {"y": 1, "Y__2": "other case"}, "list": [1, None, 3]},
    {"n__double": 1.5, "text__long": 7, "list__json": "[1.5]", "objects": [{"a": 1}, None, {"b": [True]}]},
    {"n": 2, "n__double": 2.0, "nested": {"y__double": 2.5, "deep": {"er": "x"}}, "list": [], "ID": 1, "id__2": 2,
     "a_b": "dot"},
    {"n__list": [1], "field_partition": 5, "field": "empty", "field_kafka_offset": 6, "\u00fcml\u00e4ut": "\u65e5\u672c"},
]
RAW = [b"not json", b"[1,2]", b'{"n":', b'{"n":null}']


@pytest.fixture
def table(floe, topic):
    send(floe, topic, [json.dumps(record) for record in RECORDS] + RAW)
    return topic


def catalog_of(floe):
    return load_catalog("floe", type="rest", uri=f"http://{floe.http}/iceberg")


def without_nulls(value):
    """Members that are null are not there; an element of a list stays."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def shown(rows):
    """What the rows have beside the ten columns, in the order of their offsets."""
    ordered = sorted(rows, key=lambda row: row["_kafka_offset"])
    return [without_nulls({k: v for k, v in row.items() if not k.startswith("_kafka_")}) for row in ordered]


def check(rows):
    assert shown(rows) == SHOWN + [{}] * len(RAW)
    ordered = sorted(rows, key=lambda row: row["_kafka_offset"])
    assert [row["_kafka_value"] for row in ordered] == [None] * len(RECORDS) + RAW
    classes = [(row["_kafka_error"] or {}).get("class") for row in ordered]
    assert classes == [None] * (len(RECORDS) + 2) + ["json", None]


def test_duckdb_reads_columns(floe, table):
    with duckdb_on(floe) as lake:
        # Its Python package wants another one for times with a zone.
        answer = lake.sql(f"SELECT * EXCLUDE (_kafka_timestamp) FROM lake.kafka.{table}")
        check([dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()])
        total = lake.sql(f"SELECT sum(coalesce(n__double, n)) FROM lake.kafka.{table}").fetchone()[0]
        assert math.isclose(total, 4.5)
        assert lake.sql(f"SELECT count(*) FROM lake.kafka.{table} WHERE text = '2020-01-01'").fetchone()[0] == 1


def test_pyiceberg_and_polars_read_columns(floe, table):
    loaded = catalog_of(floe).load_table(("kafka", table))
    rows = loaded.scan().to_arrow().to_pylist()
    for row in rows:
        # PyIceberg 0.12 shows a list of structs that is null as an empty one; none here is empty.
        row["objects"] = row["objects"] or None
    check(rows)
    check(polars.scan_iceberg(loaded).collect().to_dicts())
    assert loaded.scan(row_filter="n == 2").to_arrow().num_rows == 1
    assert loaded.scan(row_filter="text >= '2021'").to_arrow().num_rows == 0


def test_what_has_no_column_is_rescued(floe, topic):
    huge = '{"x":9223372036854775808,"y":1}'
    twice = '{"x":1,"x":2}'
    send(floe, topic, [huge, twice])
    rows = catalog_of(floe).load_table(("kafka", topic)).scan().to_arrow().sort_by("_kafka_offset").to_pylist()
    assert json.loads(rows[0]["_kafka_rescued"]) == {"values": {"/x": 9223372036854775808}}
    assert (rows[0]["y"], rows[1]["x"]) == (1, 2)
    assert json.loads(rows[1]["_kafka_rescued"]) == {"record": twice}


def test_columns_grow_between_looks_of_one_session(floe, topic):
    with duckdb_on(floe) as lake:
        for number in range(5):
            send(floe, topic, [json.dumps({f"k{number}": number, "all": number})])
            columns = [row[0] for row in lake.sql(f"DESCRIBE lake.kafka.{topic}").fetchall()]
            assert f"k{number}" in columns
            row = lake.sql(f"SELECT count(*), sum(\"all\"), sum(k{number}) FROM lake.kafka.{topic}").fetchone()
            assert row == (number + 1, sum(range(number + 1)), number)


def test_a_raw_topic_stays_raw(floe, topic):
    admin = AdminClient({"bootstrap.servers": floe.kafka})
    made = admin.create_topics([NewTopic(topic, 1, 1, config={"iceberg.value.format": "raw"})])
    made[topic].result(CLIENT_SECONDS)
    send(floe, topic, ['{"a":1}'])
    rows = catalog_of(floe).load_table(("kafka", topic)).scan().to_arrow().to_pylist()
    assert (rows[0]["_kafka_value"], "a" in rows[0]) == (b'{"a":1}', False)


def test_columns_survive_kill_9(floe, topic):
    send(floe, topic, ['{"a":1}'] * 10)
    assert catalog_of(floe).load_table(("kafka", topic)).scan().to_arrow().num_rows == 10
    send(floe, topic, ['{"a":"text","b":2}'] * 10)
    floe.kill9()
    floe.start()
    rows = catalog_of(floe).load_table(("kafka", topic)).scan().to_arrow().to_pylist()
    assert shown(rows) == [{"a": 1}] * 10 + [{"a__string": "text", "b": 2}] * 10
