"""The metadata store is lost: the tables come back from the object store, and their topics go on behind them."""
import json

from confluent_kafka import Consumer, TopicPartition
from pyiceberg.catalog import load_catalog

from kit import CLIENT_SECONDS, create_topic, duckdb_on, floe_command, send

PLACE = "_kafka_partition, _kafka_offset, n"


def rows(floe, topic):
    with duckdb_on(floe) as lake:
        return lake.sql(f"SELECT {PLACE} FROM lake.kafka.{topic} ORDER BY 1, 2").fetchall()


def on(floe):
    return ["--data", floe.data, "--kafka", floe.kafka, "--http", floe.http]


def lose_metadata(floe):
    files = sorted(floe.data.glob("metadata.sqlite*"))
    assert files
    for file in files:
        file.unlink()


def ends(floe, topic, partition):
    client = Consumer({"bootstrap.servers": floe.kafka, "group.id": "ends"})
    try:
        return client.get_watermark_offsets(TopicPartition(topic, partition), timeout=CLIENT_SECONDS, cached=False)
    finally:
        client.close()


def test_tables_come_back_and_their_topics_go_on(floe, topic):
    create_topic(floe, topic, 2)
    for partition, count in ((0, 50), (1, 30)):
        send(floe, topic, [json.dumps({"n": number}) for number in range(count)], partition=partition)
    before = rows(floe, topic)
    assert len(before) == 80
    snapshots = len(load_catalog("floe", type="rest", uri=f"http://{floe.http}/iceberg").load_table(("kafka", topic)).snapshots())
    assert snapshots >= 1
    running = floe_command("tables", "recover", *on(floe))
    assert running.returncode == 1 and "in use by another floe" in running.stderr, running
    floe.stop()
    for _ in range(2):
        lose_metadata(floe)
        refused = floe_command("serve", *on(floe))
        assert refused.returncode != 0 and "floe tables recover" in refused.stderr, refused
        recovered = floe_command("tables", "recover", "--json", *on(floe))
        assert recovered.returncode == 0, recovered
        table, = json.loads(recovered.stdout)
        assert (table["table"], table["topic"], table["rows"], table["problem"]) == (topic, topic, len(before), None)
        again = floe_command("tables", "recover", *on(floe))
        assert again.returncode == 0 and "in the catalog" in again.stdout, again
        floe.start()
        assert rows(floe, topic) == before
        first = [max(offset for partition, offset, _ in before if partition == index) + 1 for index in (0, 1)]
        assert [ends(floe, topic, index) for index in (0, 1)] == [(first[0],) * 2, (first[1],) * 2]
        # The names, ids and offsets are the same: clients and the table go on.
        acknowledged = send(floe, topic, [json.dumps({"n": -1})], partition=0)
        assert acknowledged[0].offset() == first[0]
        before = sorted([*before, (0, first[0], -1)])
        assert rows(floe, topic) == before
        states = json.loads(floe_command("tables", "--json", "--http", floe.http).stdout)
        assert [(state["name"], state["state"]) for state in states] == [(f"kafka.{topic}", "running")]
        floe.stop()
    doctor = floe_command("doctor", *on(floe))
    assert "nothing is deleted from the object store" in doctor.stdout, doctor
    floe.start()
