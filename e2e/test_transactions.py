"""Transactions with librdkafka, which speaks the protocol before KIP-890: commits, aborts, groups, kill -9, and the table."""
import confluent_kafka
import pytest

from kit import CLIENT_SECONDS, QUIET, create_topic, duckdb_on, kcat

PARTITIONS = 3


def transactional(floe, name, **settings):
    """A producer that has its id and epoch."""
    client = confluent_kafka.Producer({
        "bootstrap.servers": floe.kafka, "transactional.id": name, "transaction.timeout.ms": 60_000, "linger.ms": 1,
    } | QUIET | settings)
    client.init_transactions(CLIENT_SECONDS)
    return client


def transact(client, topic, name, commit):
    """One transaction with a record in each partition."""
    client.begin_transaction()
    for partition in range(PARTITIONS):
        client.produce(topic, value=name, partition=partition)
    assert client.flush(CLIENT_SECONDS) == 0
    if commit:
        client.commit_transaction(CLIENT_SECONDS)
    else:
        client.abort_transaction(CLIENT_SECONDS)


def committed(floe, topic):
    """What a reader of committed records sees of each partition, by kcat."""
    seen = []
    for partition in range(PARTITIONS):
        text = kcat(floe, "-C", "-e", "-q", "-t", topic, "-p", partition, "-o", "beginning",
                    "-X", "isolation.level=read_committed")
        seen.append(text.decode().split())
    return seen


def test_a_transaction_is_whole_in_the_log_and_in_the_table(floe, topic):
    create_topic(floe, topic, PARTITIONS)
    client = transactional(floe, topic)
    for number in range(6):
        transact(client, topic, f"t{number}", commit=number % 2 == 0)
    expected = ["t0", "t2", "t4"]
    assert committed(floe, topic) == [expected] * PARTITIONS
    with duckdb_on(floe) as lake:
        rows = lake.sql(f"SELECT _kafka_value FROM lake.kafka.{topic}").fetchall()
    assert sorted(value.decode() for (value,) in rows) == sorted(expected * PARTITIONS)
    # A restart forgets nothing, and the next producer of this id goes on.
    floe.restart()
    transact(transactional(floe, topic), topic, "t6", commit=True)
    assert committed(floe, topic) == [[*expected, "t6"]] * PARTITIONS


@pytest.mark.parametrize("was_written", [True, False], ids=["open", "empty"])
def test_a_killed_broker_leaves_nothing_half_done(floe, topic, was_written):
    create_topic(floe, topic, PARTITIONS)
    client = transactional(floe, topic)
    transact(client, topic, "first", commit=True)
    client.begin_transaction()
    if was_written:
        for partition in range(PARTITIONS):
            client.produce(topic, value="open", partition=partition)
        assert client.flush(CLIENT_SECONDS) == 0
    floe.kill9()
    floe.start()
    # Open, it can still be committed by the producer that began it.
    client.commit_transaction(CLIENT_SECONDS)
    expected = ["first", "open"] if was_written else ["first"]
    assert committed(floe, topic) == [expected] * PARTITIONS


def test_a_new_producer_fences_the_old_one(floe, topic):
    create_topic(floe, topic, PARTITIONS)
    old = transactional(floe, topic)
    old.begin_transaction()
    old.produce(topic, value="old", partition=0)
    assert old.flush(CLIENT_SECONDS) == 0
    transact(transactional(floe, topic), topic, "new", commit=True)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        old.commit_transaction(CLIENT_SECONDS)
    assert caught.value.args[0].fatal()
    assert committed(floe, topic) == [["new"]] * PARTITIONS


def test_offsets_are_committed_with_the_transaction(floe, topic):
    create_topic(floe, topic, PARTITIONS)
    client = transactional(floe, topic)
    transact(client, topic, "in", commit=True)
    reader = confluent_kafka.Consumer({
        "bootstrap.servers": floe.kafka, "group.id": f"g-{topic}", "enable.auto.commit": False,
        "isolation.level": "read_committed",
    } | QUIET)
    place = confluent_kafka.TopicPartition(topic, 0, 1)
    for commit, expected in [(False, confluent_kafka.OFFSET_INVALID), (True, 1)]:
        client.begin_transaction()
        client.produce(topic, value="out", partition=1)
        client.send_offsets_to_transaction([place], reader.consumer_group_metadata(), CLIENT_SECONDS)
        if commit:
            client.commit_transaction(CLIENT_SECONDS)
        else:
            client.abort_transaction(CLIENT_SECONDS)
        [found] = reader.committed([confluent_kafka.TopicPartition(topic, 0)], CLIENT_SECONDS)
        assert found.offset == expected
    reader.close()
