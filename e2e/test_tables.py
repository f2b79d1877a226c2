"""The topic as a table: DuckDB and PyIceberg through Floe's own catalog, with nothing but its address."""
import datetime
import time

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable

from kit import CLIENT_SECONDS, alter_config, create_topic, duckdb_on, floe_command, producer, read_all, send

# The columns with which every table begins, in this order.
COLUMNS = [
    "_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_kafka_timestamp_ms", "_kafka_timestamp_type",
    "_kafka_key", "_kafka_value", "_kafka_headers", "_kafka_rescued", "_kafka_error",
]
# A table takes up its topic's configs once a second.
CONFIG_SECONDS = 2.5
SENT_MS = 1_700_000_000_123
# key, value, headers: with nulls, empty ones and a repeated name, none of which may become another
SAMPLES = [
    (b"key", b"value \xff", [("a", b"1"), ("none", None), ("a", b""), ("bytes", b"\x00\xff")]),
    (None, b"no key", []),
    (b"gone", None, [("why", b"deleted")]),
    (b"", b"", []),
]


@pytest.fixture
def samples(floe, topic):
    """A topic with SAMPLES in partition 0."""
    client = producer(floe)
    for key, value, headers in SAMPLES:
        client.produce(topic, key=key, value=value, headers=headers, partition=0, timestamp=SENT_MS)
    assert client.flush(CLIENT_SECONDS) == 0
    return topic


@pytest.fixture
def lake(floe):
    with duckdb_on(floe) as session:
        yield session


def catalog_of(floe):
    return load_catalog("floe", type="rest", uri=f"http://{floe.http}/iceberg")


def count(lake, topic):
    return lake.sql(f"SELECT count(*) FROM lake.kafka.{topic}").fetchone()[0]


def headers_of(row):
    """A cell of _kafka_headers as pairs; no headers may be an empty list or null."""
    return [(header["key"], None if header["value"] is None else bytes(header["value"])) for header in row or []]


def test_duckdb_reads_values(lake, samples):
    names = [row[0] for row in lake.sql(f"DESCRIBE lake.kafka.{samples}").fetchall()]
    assert names[:len(COLUMNS)] == COLUMNS
    rows = lake.sql(f"""SELECT _kafka_partition, _kafka_offset, epoch_ms(_kafka_timestamp), _kafka_timestamp_ms,
        _kafka_timestamp_type, _kafka_key, _kafka_value, _kafka_headers, _kafka_rescued, _kafka_error
        FROM lake.kafka.{samples} ORDER BY _kafka_offset""").fetchall()
    assert len(rows) == len(SAMPLES)
    for offset, (row, (key, value, headers)) in enumerate(zip(rows, SAMPLES, strict=True)):
        assert row[:5] == (0, offset, SENT_MS, SENT_MS, 0)
        assert row[5:7] == (key, value)
        assert headers_of(row[7]) == headers
        assert row[8:] == (None, None)


def test_pyiceberg_reads_values(floe, samples):
    table = catalog_of(floe).load_table(("kafka", samples))
    rows = table.scan().to_arrow().sort_by("_kafka_offset").to_pylist()
    assert list(rows[0])[:len(COLUMNS)] == COLUMNS
    assert len(rows) == len(SAMPLES)
    sent = datetime.datetime.fromtimestamp(SENT_MS / 1000, datetime.timezone.utc)
    for offset, (row, (key, value, headers)) in enumerate(zip(rows, SAMPLES, strict=True)):
        assert (row["_kafka_partition"], row["_kafka_offset"]) == (0, offset)
        assert (row["_kafka_timestamp"], row["_kafka_timestamp_ms"], row["_kafka_timestamp_type"]) == (sent, SENT_MS, 0)
        assert (row["_kafka_key"], row["_kafka_value"]) == (key, value)
        assert headers_of(row["_kafka_headers"]) == headers
        assert (row["_kafka_rescued"], row["_kafka_error"]) == (None, None)


def test_pyiceberg_lists_tables(floe, samples):
    catalog = catalog_of(floe)
    assert ("kafka",) in catalog.list_namespaces()
    assert ("kafka", samples) in catalog.list_tables("kafka")


def test_a_query_sees_what_was_acknowledged_before_it(floe, topic, lake):
    total = 0
    for batch in (100, 1, 250, 7):
        send(floe, topic, [f"{total + number}" for number in range(batch)])
        total += batch
        assert count(lake, topic) == total
    assert count(lake, topic) == total


def test_pyiceberg_sees_what_was_acknowledged_before_it(floe, topic):
    catalog = catalog_of(floe)
    for total in (10, 20):
        send(floe, topic, [b"x"] * 10)
        assert catalog.load_table(("kafka", topic)).scan().to_arrow().num_rows == total


def test_table_and_log_hold_the_same(floe, topic, lake):
    create_topic(floe, topic, 3)
    for partition in range(3):
        send(floe, topic, [f"{partition}-{number}" for number in range(500)], partition=partition)
    log = [
        (partition, record.offset(), record.value())
        for partition, records in sorted(read_all(floe, topic).items()) for record in records
    ]
    table = lake.sql(f"""SELECT _kafka_partition, _kafka_offset, _kafka_value FROM lake.kafka.{topic}
        ORDER BY _kafka_partition, _kafka_offset""").fetchall()
    assert len(log) == 1500
    assert table == log


def test_folded_files_have_the_same_rows(floe, topic, lake):
    """Looks make a file each; the upkeep folds them. Engines see the same rows, and who follows appends sees each once."""
    catalog, sent = catalog_of(floe), 24
    for number in range(sent):
        send(floe, topic, [f"{number}"])
        catalog.load_table(("kafka", topic))
    expected = [f"{number}".encode() for number in range(sent)]
    for _ in range(CLIENT_SECONDS):
        table = catalog.load_table(("kafka", topic))
        operations = [snapshot.summary.operation.value for snapshot in table.snapshots()]
        if "replace" in operations:
            break
        time.sleep(1)
    assert "replace" in operations, operations
    files = table.inspect.files()
    assert files.num_rows < sent - 10, "small files are gone"
    rows = table.scan().to_arrow().sort_by("_kafka_offset")
    assert rows.column("_kafka_value").to_pylist() == expected
    in_duckdb = lake.sql(f"SELECT _kafka_value FROM lake.kafka.{topic} ORDER BY _kafka_offset").fetchall()
    assert [value for (value,) in in_duckdb] == expected
    # Each row was added by exactly one append; a reader of appends skips everything else.
    appends = [snapshot for snapshot in table.snapshots() if snapshot.summary.operation.value == "append"]
    assert sum(int(snapshot.summary["added-records"]) for snapshot in appends) == sent
    assert len(appends) + operations.count("replace") == len(operations)
    filtered = table.scan(row_filter="_kafka_offset >= 20").to_arrow()
    assert sorted(filtered.column("_kafka_offset").to_pylist()) == list(range(20, sent)), "bounds hide no row"


def test_a_topic_that_becomes_a_table_late_has_all_of_its_records(floe, topic, lake):
    admin = AdminClient({"bootstrap.servers": floe.kafka})
    new = NewTopic(topic, num_partitions=3, replication_factor=1, config={"iceberg.enable": "false"})
    admin.create_topics([new])[topic].result(CLIENT_SECONDS)
    send(floe, topic, [b"x" * 1000] * 5000)
    assert not catalog_of(floe).table_exists(("kafka", topic))
    alter_config(floe, topic, "iceberg.enable", "true")
    send(floe, topic, [b"tail"] * 10)
    assert count(lake, topic) == 5010
    alter_config(floe, topic, "iceberg.enable", "false")
    time.sleep(CONFIG_SECONDS)
    send(floe, topic, [b"more"] * 10)
    table = catalog_of(floe).load_table(("kafka", topic))
    assert (table.scan().count(), table.config["floe.behind-records"]) == (5010, "10")
    alter_config(floe, topic, "iceberg.enable")
    time.sleep(CONFIG_SECONDS)
    assert count(lake, topic) == 5020


def test_rows_that_are_too_old_leave_the_table_and_not_the_log(floe, topic, lake):
    """Retention of the table alone: whole files go, the rest and the log stay, and who looks sees it."""
    admin = AdminClient({"bootstrap.servers": floe.kafka})
    new = NewTopic(topic, num_partitions=1, replication_factor=1, config={"iceberg.retention.ms": "86400000"})
    admin.create_topics([new])[topic].result(CLIENT_SECONDS)
    send(floe, topic, [b"old"] * 5, timestamp=SENT_MS)
    assert count(lake, topic) in (0, 5)
    send(floe, topic, [b"new"] * 3)
    deadline = time.monotonic() + CLIENT_SECONDS
    while count(lake, topic) != 3:
        assert time.monotonic() < deadline, "old rows stay"
        time.sleep(0.5)
    assert len(read_all(floe, topic)[0]) == 8
    table = catalog_of(floe).load_table(("kafka", topic))
    operations = [snapshot.summary.operation.value for snapshot in table.snapshots()]
    assert "delete" in operations and "overwrite" not in operations, operations
    assert table.scan().to_arrow().column("_kafka_value").to_pylist() == [b"new"] * 3
    with pytest.raises(KafkaException):
        bad = NewTopic(topic + "_bad", num_partitions=1, replication_factor=1, config={"iceberg.retention.ms": "-2"})
        admin.create_topics([bad])[topic + "_bad"].result(CLIENT_SECONDS)


def test_metadata_is_compressed_and_engines_read_its_file(floe, topic):
    send(floe, topic, [b"x"] * 10)
    location = catalog_of(floe).load_table(("kafka", topic)).metadata_location
    assert location.endswith(".gz.metadata.json")
    assert StaticTable.from_metadata(location).scan().to_arrow().num_rows == 10
    with duckdb_on(floe) as session:
        path = location.removeprefix("file://")
        found = session.sql(f"SELECT count(*) FROM iceberg_scan('{path}', metadata_compression_codec='gzip')").fetchone()[0]
    assert found == 10


def test_a_running_table_is_not_resumed(floe, topic):
    send(floe, topic, [b"x"])
    catalog_of(floe).load_table(("kafka", topic))
    for name, said in ((f"kafka.{topic}", "not stopped"), ("kafka.none", "there is no table")):
        result = floe_command("tables", "resume", name, "--rewind", "--http", floe.http)
        assert result.returncode == 1 and said in result.stderr, result
    assert floe_command("tables", "resume", "x", "--http", floe.http).returncode == 2, "it must say how"


def test_a_deleted_topics_table_is_gone_and_its_name_is_free(floe, topic):
    catalog, admin = catalog_of(floe), AdminClient({"bootstrap.servers": floe.kafka})
    send(floe, topic, [b"old"] * 10)
    old = catalog.load_table(("kafka", topic))
    send(floe, topic, [b"rest"] * 5)
    admin.delete_topics([topic], operation_timeout=CLIENT_SECONDS)[topic].result(CLIENT_SECONDS)
    assert not catalog.table_exists(("kafka", topic))
    with pytest.raises(NoSuchTableError):
        catalog.load_table(("kafka", topic))
    assert old.scan().to_arrow().num_rows == 10, "whoever has it open reads on"
    create_topic(floe, topic, 1)
    send(floe, topic, [b"new"] * 3)
    rows = catalog.load_table(("kafka", topic)).scan().to_arrow()
    assert rows.column("_kafka_value").to_pylist() == [b"new"] * 3


def test_the_table_survives_kill_9(floe, topic):
    send(floe, topic, [b"x"] * 100)
    with duckdb_on(floe) as before:
        assert count(before, topic) == 100
    send(floe, topic, [b"x"] * 50)
    floe.kill9()
    floe.start()
    with duckdb_on(floe) as after:
        assert count(after, topic) == 150
        offsets = after.sql(f"SELECT count(DISTINCT (_kafka_partition, _kafka_offset)) FROM lake.kafka.{topic}")
        assert offsets.fetchone()[0] == 150
