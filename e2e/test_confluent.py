"""confluent-kafka (a current librdkafka): topics, producing, assigning, groups."""

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kit import CLIENT_SECONDS, QUIET, consumer, create_topic, poll, producer, read_all, send


def partitions_of(admin, topic):
    """The topic's partitions, none where it does not exist."""
    topics = admin.list_topics(timeout=CLIENT_SECONDS).topics
    return sorted(topics[topic].partitions) if topic in topics else []


def refusal(future):
    """The error code with which an admin request is refused."""
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        future.result(CLIENT_SECONDS)
    return caught.value.args[0].code()


def test_topics_are_created_and_deleted(floe, topic):
    admin = create_topic(floe, topic, 3)
    assert partitions_of(admin, topic) == [0, 1, 2]
    again = admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])[topic]
    assert refusal(again) == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS

    send(floe, topic, [b"old"], partition=0)
    admin.delete_topics([topic], operation_timeout=CLIENT_SECONDS)[topic].result(CLIENT_SECONDS)
    assert partitions_of(admin, topic) == []
    unknown = refusal(admin.delete_topics([topic])[topic])
    assert unknown == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART

    # A new topic of the old name begins empty: it is another topic.
    create_topic(floe, topic, 1)
    assert [record.value() for record in send(floe, topic, [b"new"])] == [b"new"]
    assert [record.value() for record in read_all(floe, topic)[0]] == [b"new"]


def test_an_invalid_topic_is_refused(floe):
    admin = AdminClient({"bootstrap.servers": floe.kafka} | QUIET)
    name = "not a topic"
    code = refusal(admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])[name])
    assert code == confluent_kafka.KafkaError.TOPIC_EXCEPTION


def test_records_come_back_as_they_were_sent(floe, topic):
    create_topic(floe, topic, 4)
    count = 4000
    delivered = {}
    client = producer(floe)
    for number in range(count):
        client.produce(
            topic, key=f"key-{number % 37}", value=f"value-{number}", timestamp=1_700_000_000_000 + number,
            headers=[("number", str(number).encode()), ("none", None)],
            on_delivery=lambda error, record, number=number: delivered.update({number: (error, record)}))
        client.poll(0)
    assert client.flush(CLIENT_SECONDS) == 0
    assert len(delivered) == count and all(error is None for error, _ in delivered.values())

    got = read_all(floe, topic)
    assert sum(map(len, got.values())) == count
    for partition, records in got.items():
        assert [record.offset() for record in records] == list(range(len(records))), f"partition {partition}"
        for record in records:
            number = int(record.value().removeprefix(b"value-"))
            acknowledged = delivered[number][1]
            assert (acknowledged.partition(), acknowledged.offset()) == (partition, record.offset())
            assert record.key() == f"key-{number % 37}".encode()
            assert record.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_700_000_000_000 + number)
            assert record.headers() == [("number", str(number).encode()), ("none", None)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed(floe, topic, codec):
    values = [f"{number:06} {'abc' * 50}".encode() for number in range(2000)]
    client = producer(floe, **{"compression.type": codec})
    for value in values:
        client.produce(topic, value=value, partition=0)
    assert client.flush(CLIENT_SECONDS) == 0
    assert [record.value() for record in read_all(floe, topic)[0]] == values


def test_a_group_resumes_after_a_restart(floe, topic):
    send(floe, topic, [str(number) for number in range(100)], partition=0)
    first = consumer(floe, f"group-{topic}")
    first.subscribe([topic])
    assert [record.value() for record in poll(first, 40)] == [str(number).encode() for number in range(40)]
    place = confluent_kafka.TopicPartition(topic, 0, 40)
    committed = first.commit(offsets=[place], asynchronous=False)
    assert [(each.offset, each.error) for each in committed] == [(40, None)]
    first.close()

    floe.restart()
    second = consumer(floe, f"group-{topic}")
    second.subscribe([topic])
    assert [record.value() for record in poll(second, 60)] == [str(number).encode() for number in range(40, 100)]
    # Reading is not committing.
    assert second.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=CLIENT_SECONDS)[0].offset == 40
    second.close()


def test_a_group_shares_partitions(floe, topic):
    create_topic(floe, topic, 4)
    for partition in range(4):
        send(floe, topic, [f"{partition}-{number}" for number in range(50)], partition=partition)
    members = [consumer(floe, f"group-{topic}") for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    # Both are polled until each has two partitions, as a group with two members must.
    seen = [set(), set()]
    for _ in range(CLIENT_SECONDS * 2):
        for member, values in zip(members, seen, strict=True):
            record = member.poll(0.25)
            if record is not None and record.error() is None:
                values.add(record.value())
        if [len(member.assignment()) for member in members] == [2, 2] and len(seen[0] | seen[1]) == 200:
            break
    assigned = [{place.partition for place in member.assignment()} for member in members]
    assert sorted(map(len, assigned)) == [2, 2] and assigned[0] | assigned[1] == {0, 1, 2, 3}
    assert len(seen[0] | seen[1]) == 200
    for member in members:
        member.close()
