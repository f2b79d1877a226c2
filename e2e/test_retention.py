"""Retention: what is over leaves the log at both ends of a client's view, and the disk after the grace."""
import json
import sqlite3
import time

import confluent_kafka
import pytest

from kit import (
    CLIENT_SECONDS, QUIET, Floe, alter_config, create_topic, duckdb_on, floe_command, kcat, producer,
    read_all, send)

WAIT_SECONDS = 30
# A dead object of a directory is kept so long (LOCAL_GRACE in broker/log/src/clean.rs).
LOCAL_GRACE_MS = 600_000
VALUE = b"v" * 1000
# More than half of the largest extent that a merge makes (1 MiB).
LARGE_VALUE = b"v" * 600_000


@pytest.fixture
def floe(tmp_path, request):
    """A broker that looks for old records twice a second."""
    broker = Floe(tmp_path, {"kafka.log.retention.check.interval.ms": "500", "iceberg.commit_interval_ms": "1000"})
    request.node.floe = broker
    try:
        yield broker.start()
    finally:
        if broker.process is not None:
            broker.stop()


def earliest(floe, topic):
    return int(kcat(floe, "-Q", "-t", f"{topic}:0:-2").split()[-1])


def wait_until(found, what):
    """The first truthy answer."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (answer := found()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return answer


def metric(floe, name):
    return next(float(line.split()[1]) for line in floe.get("/metrics")[1].splitlines() if line.startswith(f"{name} "))


def log_bytes(floe):
    """Bytes of the log's objects."""
    return sum(file.stat().st_size for folder in ("wal", "log") for file in floe.data.glob(f"store/*/{folder}/**/*.kfs"))


def one_by_one(floe, topic, count, value=VALUE):
    """A segment for each record, all of them before the first merge."""
    client = producer(floe)
    for _ in range(count):
        client.produce(topic, value=value, partition=0)
        assert client.flush(CLIENT_SECONDS) == 0, "records are not acknowledged in time"


def test_records_go_by_age_and_offsets_go_on(floe, topic):
    create_topic(floe, topic, 1)
    alter_config(floe, topic, "iceberg.enable", "false")
    one_by_one(floe, topic, 5)
    time.sleep(2)
    assert earliest(floe, topic) == 0, "a week has not passed"
    alter_config(floe, topic, "retention.ms", "1000")
    wait_until(lambda: earliest(floe, topic) == 5, "old records stay")
    client = confluent_kafka.Consumer({
        "bootstrap.servers": floe.kafka, "group.id": "late", "auto.offset.reset": "error"} | QUIET)
    client.assign([confluent_kafka.TopicPartition(topic, 0, 2)])
    told = wait_until(lambda: client.poll(1.0), "nobody says that the records are gone")
    client.close()
    assert told.error().code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET, told.error()
    alter_config(floe, topic, "retention.ms", "-1")
    send(floe, topic, [b"next"], partition=0)
    assert [(record.offset(), record.value()) for record in read_all(floe, topic)[0]] == [(5, b"next")]
    assert metric(floe, 'floe_retention_bytes_total{reason="time"}') > 5000


def test_records_go_by_size_and_their_files_after_the_grace(floe, topic):
    create_topic(floe, topic, 1)
    alter_config(floe, topic, "iceberg.enable", "false")
    # Two of them are more than a merge makes one extent of: each goes alone, merged or not.
    one_by_one(floe, topic, 20, LARGE_VALUE)
    full = log_bytes(floe)
    alter_config(floe, topic, "retention.bytes", str(5 * len(LARGE_VALUE)))
    start = wait_until(lambda: earliest(floe, topic), "there is more than asked for")
    # Each record takes a little more than its value: so much stays that one less would be too little.
    assert 15 <= start <= 16, start
    assert log_bytes(floe) >= full, "readers may still hold what is gone"
    floe.stop()
    with sqlite3.connect(floe.data / "metadata.sqlite") as metadata:
        metadata.execute("UPDATE objects SET dead_since_ms = dead_since_ms - ?", [LOCAL_GRACE_MS])
    metadata.close()
    floe.start()
    wait_until(lambda: log_bytes(floe) < full / 2, "files of records that are gone stay")
    assert len(read_all(floe, topic)[0]) == 20 - start


def test_a_compacted_topic_keeps_everything_until_it_deletes_too(floe, topic):
    create_topic(floe, topic, 1)
    for name, value in (("iceberg.enable", "false"), ("cleanup.policy", "compact"), ("retention.ms", "1")):
        alter_config(floe, topic, name, value)
    send(floe, topic, [b"kept"] * 3, partition=0, key=b"k")
    rounds = metric(floe, 'floe_job_rounds_total{job="retention"}')
    wait_until(lambda: metric(floe, 'floe_job_rounds_total{job="retention"}') >= rounds + 3, "no round of retention")
    assert earliest(floe, topic) == 0
    alter_config(floe, topic, "cleanup.policy", "compact,delete")
    wait_until(lambda: earliest(floe, topic) == 3, "old records stay")


def test_the_table_keeps_what_the_log_loses(floe, topic):
    create_topic(floe, topic, 1)
    alter_config(floe, topic, "retention.ms", "1")
    send(floe, topic, [b"row"] * 7, partition=0)
    wait_until(lambda: earliest(floe, topic) == 7, "old records stay")
    assert duckdb_on(floe).sql(f"SELECT count(*) FROM lake.kafka.{topic}").fetchall() == [(7,)]
    table, = (table for table in json.loads(floe.get("/v1/tables")[1]) if table["topic"] == topic)
    assert (table["state"], table["gap_offsets"]) == ("running", 0), table
    assert metric(floe, "floe_retention_lacked_by_table_offsets_total") == 0


def test_a_timestamp_in_the_future_is_told(floe, topic):
    create_topic(floe, topic, 1)
    for name, value in (("message.timestamp.after.max.ms", str(2**62)), ("retention.ms", "1")):
        alter_config(floe, topic, name, value)
    send(floe, topic, [b"from 2100"], partition=0, timestamp=4_102_444_800_000)
    send(floe, topic, [b"from now"], partition=0)
    wait_until(lambda: metric(floe, "floe_retention_future_partitions") == 1, "nobody says what keeps the log")
    assert earliest(floe, topic) == 0
    described = floe_command("topics", "describe", topic, "--http", floe.http).stdout
    assert "2100-01-01T00:00:00Z, in the future" in described, described
    listed = floe_command("topics", "--http", floe.http).stdout
    assert f"{topic}: 1 of its partitions keep records longer" in listed, listed
    assert "a timestamp in the future keep the log" in floe.log_tail()


def test_the_brokers_settings_are_the_topics_defaults(tmp_path, topic):
    broker = Floe(tmp_path, {
        "kafka.log.retention.minutes": "7", "kafka.log.retention.bytes": "4096",
        "kafka.log.retention.check.interval.ms": "500"}).start()
    try:
        admin = create_topic(broker, topic, 1)
        resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ConfigResource.Type.TOPIC, topic)
        configs = admin.describe_configs([resource])[resource].result(CLIENT_SECONDS)
        assert (configs["retention.ms"].value, configs["retention.bytes"].value) == ("420000", "4096")
        assert list(configs["retention.ms"].synonyms) == ["log.retention.minutes", "log.retention.hours"]
        alter_config(broker, topic, "iceberg.enable", "false")
        one_by_one(broker, topic, 8)
        wait_until(lambda: earliest(broker, topic) >= 4, "there is more than the broker's setting keeps")
    finally:
        broker.stop()
