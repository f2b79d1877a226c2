"""Log compaction, as stock clients see it: the newest value of each key, tombstones until their time, the table whole."""
import json
import time

import confluent_kafka
import pytest

from kit import CLIENT_SECONDS, QUIET, Floe, alter_config, create_topic, duckdb_on, floe_command, kcat, producer
from test_retention import earliest, metric, wait_until

RECORDS = 10_000
KEYS = 100


@pytest.fixture
def floe(tmp_path, request):
    """A broker that looks for partitions to compact twice a second."""
    broker = Floe(tmp_path, {"kafka.log.cleaner.backoff.ms": "500", "iceberg.commit_interval_ms": "1000"})
    request.node.floe = broker
    try:
        yield broker.start()
    finally:
        if broker.process is not None:
            broker.stop()


def compacted(floe, topic, has_table, **configs):
    create_topic(floe, topic, 1)
    configs = {
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0", "iceberg.enable": str(has_table).lower(),
    } | configs
    for name, value in configs.items():
        alter_config(floe, topic, name, value)


def write(floe, topic, pairs, **settings):
    """Records of these keys and values, in order."""
    client = producer(floe, **settings)
    for key, value in pairs:
        client.produce(topic, key=key, value=value, partition=0, headers=[("of", key)])
        client.poll(0)
    assert client.flush(CLIENT_SECONDS) == 0, "records are not acknowledged in time"


def read(floe, topic):
    """All records from the earliest to the end, as a consumer gets them."""
    client = confluent_kafka.Consumer({
        "bootstrap.servers": floe.kafka, "group.id": "reader", "enable.partition.eof": True,
        "enable.auto.commit": False} | QUIET)
    client.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    records, deadline = [], time.monotonic() + CLIENT_SECONDS
    while True:
        assert time.monotonic() < deadline, "the end of the log is not reached"
        record = client.poll(1.0)
        if record is None:
            continue
        if record.error():
            assert record.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, record.error()
            break
        records.append(record)
    client.close()
    return records


def is_clean(floe, topic, count):
    return wait_until(lambda: len(found := read(floe, topic)) == count and found, f"there are not {count} records")


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_case_152_the_newest_value_of_each_key_is_left_and_offsets_keep_their_holes(floe, topic, codec):
    compacted(floe, topic, has_table=False)
    pairs = [(b"k%d" % (at % KEYS), b"value %d" % at) for at in range(RECORDS)]
    write(floe, topic, pairs, **{"compression.type": codec, "linger.ms": "5", "batch.num.messages": "500"})
    records = is_clean(floe, topic, KEYS)
    assert {record.key(): record.value() for record in records} == dict(pairs)
    assert [record.offset() for record in records] == list(range(RECORDS - KEYS, RECORDS))
    assert all(record.headers() == [("of", record.key())] for record in records)
    assert earliest(floe, topic) == 0, "the log starts where it did"
    assert metric(floe, "floe_compaction_removed_records_total") >= RECORDS - KEYS
    first = kcat(floe, "-C", "-t", topic, "-p", "0", "-o", "17", "-c", "1", "-f", "%o %k")
    assert first.split() == [b"%d" % (RECORDS - KEYS), b"k%d" % ((RECORDS - KEYS) % KEYS)], "a fetch in the hole goes on behind it"
    floe.stop()
    floe.start()
    assert {record.key(): record.value() for record in read(floe, topic)} == dict(pairs)
    write(floe, topic, [(b"k1", b"after")])
    assert read(floe, topic)[-1].offset() == RECORDS, "offsets go on"


def test_case_169_tombstones_go_after_their_time(floe, topic):
    compacted(floe, topic, has_table=False, **{"delete.retention.ms": "4000"})
    began = time.monotonic()
    write(floe, topic, [(b"a", b"1"), (b"b", b"1"), (b"a", None), (b"c", b"1")])
    records = is_clean(floe, topic, 3)
    assert [(record.key(), record.value()) for record in records] == [(b"b", b"1"), (b"a", None), (b"c", b"1")]
    records = is_clean(floe, topic, 2)
    assert [record.key() for record in records] == [b"b", b"c"]
    assert time.monotonic() - began >= 4, "a tombstone must be seen for so long"


def test_records_without_a_key_are_refused(floe, topic):
    compacted(floe, topic, has_table=False)
    told = []
    client = producer(floe)
    client.produce(topic, value=b"keyless", partition=0, on_delivery=lambda error, _: told.append(error))
    assert client.flush(CLIENT_SECONDS) == 0
    assert [error.code() for error in told] == [confluent_kafka.KafkaError.INVALID_RECORD]


def test_the_table_has_every_record_that_ever_was(floe, topic):
    compacted(floe, topic, has_table=True)
    pairs = [(b"k%d" % (at % KEYS), b"value %d" % at) for at in range(RECORDS)]
    write(floe, topic, pairs)
    is_clean(floe, topic, KEYS)
    lake = duckdb_on(floe)
    assert lake.sql(f"SELECT count(*), count(DISTINCT _kafka_offset) FROM lake.kafka.{topic}").fetchall() == [
        (RECORDS, RECORDS)]
    table, = (table for table in json.loads(floe.get("/v1/tables")[1]) if table["topic"] == topic)
    assert (table["state"], table["gap_offsets"]) == ("running", 0), table


def test_aborted_records_are_no_values(floe, topic):
    compacted(floe, topic, has_table=False)
    client = producer(floe, **{"transactional.id": topic})
    client.init_transactions(CLIENT_SECONDS)
    for at in range(20):
        client.begin_transaction()
        client.produce(topic, key=b"a", value=b"%d" % at, partition=0)
        client.produce(topic, key=b"b", value=b"%d" % at, partition=0)
        if at % 2 == 0:
            client.commit_transaction(CLIENT_SECONDS)
        else:
            client.abort_transaction(CLIENT_SECONDS)
    records = is_clean(floe, topic, 2)
    assert {record.key(): record.value() for record in records} == {b"a": b"18", b"b": b"18"}


def test_a_table_that_is_switched_on_waits_for_nothing_that_is_gone(floe, topic):
    compacted(floe, topic, has_table=False)
    write(floe, topic, [(b"k%d" % (at % 7), b"%d" % at) for at in range(700)])
    is_clean(floe, topic, 7)
    alter_config(floe, topic, "iceberg.enable", "true")
    count = lambda: duckdb_on(floe).sql(f"SELECT count(*) FROM lake.kafka.{topic}").fetchall()
    wait_until(lambda: topic in floe_command("tables", "--http", floe.http).stdout, "no table is made")
    assert count() == [(7,)]
    write(floe, topic, [(b"k1", b"more")])
    assert count() == [(8,)]
