"""checks.py HOST:PORT: aiokafka against a broker. A line a check, `PASS NAME | SECONDS NOTE`; each has topics of its own."""
import asyncio
import sys
import time
import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, OffsetOutOfRangeError, TopicAlreadyExistsError

BROKER = sys.argv[1]
LIMIT_SECONDS = 60
CODECS = ("gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
CHECKS = {}


def check(body):
    CHECKS[body.__name__.replace("_", " ")] = body
    return body


class Opened:
    """Clients that are started here and stopped together."""

    def __init__(self):
        self.clients = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for client in reversed(self.clients):
            await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())

    async def open(self, client):
        await client.start()
        self.clients.append(client)
        return client

    async def admin(self):
        return await self.open(AIOKafkaAdminClient(bootstrap_servers=BROKER))

    async def producer(self, **settings):
        return await self.open(AIOKafkaProducer(bootstrap_servers=BROKER, acks="all", **settings))

    async def consumer(self, *topics, **settings):
        wanted = {"auto_offset_reset": "earliest", "enable_auto_commit": False} | settings
        return await self.open(AIOKafkaConsumer(*topics, bootstrap_servers=BROKER, **wanted))

    async def topic(self, partitions=PARTITIONS, **configs):
        name = f"aiokafka-{uuid.uuid4().hex[:12]}"
        new = NewTopic(name=name, num_partitions=partitions, replication_factor=1, topic_configs=configs)
        admin = await self.admin()
        raise_for(await admin.create_topics([new]))
        await eventually(lambda: is_listed(admin, name), True)
        return name


def raise_for(response):
    """Raises for the first error of an answer to CreateTopics and its like."""
    for code in [each[1] for each in response.topic_errors]:
        assert code == 0, f"error {code} in {response}"


def equal(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


async def eventually(asking, want):
    """Asks until the answer is the wanted one: Kafka's brokers hear of changes a moment later than their controller."""
    while await asking() != want:
        await asyncio.sleep(0.05)


async def read(consumer, count):
    return [await consumer.getone() for _ in range(count)]


async def refused(error, doing):
    try:
        await doing
    except error:
        return
    raise AssertionError(f"{error.__name__} was expected")


@check
async def topics_are_made_listed_grown_and_deleted(opened):
    admin, topic = await opened.admin(), await opened.topic()
    assert topic in await admin.list_topics()
    described = (await admin.describe_topics([topic]))[0]
    equal([described["topic"], len(described["partitions"])], [topic, PARTITIONS])
    await admin.create_partitions({topic: NewPartitions(total_count=PARTITIONS + 2)})
    await eventually(lambda: partition_count(admin, topic), PARTITIONS + 2)
    again = NewTopic(name=topic, num_partitions=1, replication_factor=1)
    equal((await admin.create_topics([again])).topic_errors[0][1], TopicAlreadyExistsError.errno)
    await admin.delete_topics([topic])
    await eventually(lambda: is_listed(admin, topic), False)


async def partition_count(admin, topic):
    return len((await admin.describe_topics([topic]))[0]["partitions"])


async def is_listed(admin, topic):
    return topic in await admin.list_topics()


@check
async def configs_are_described_and_altered(opened):
    admin, topic = await opened.admin(), await opened.topic(**{"retention.ms": "3600000"})
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    equal((await topic_configs(admin, resource))["retention.ms"], "3600000")
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "7200000"})])
    equal((await topic_configs(admin, resource))["retention.ms"], "7200000")


async def topic_configs(admin, resource):
    (answer,) = await admin.describe_configs([resource])
    code, _, _, _, configs = answer.resources[0]
    equal(code, 0)
    return {each[0]: each[1] for each in configs}


@check
async def the_cluster_is_described(opened):
    cluster = await (await opened.admin()).describe_cluster()
    host, port = BROKER.rsplit(":", 1)
    equal([(each["host"], each["port"]) for each in cluster["brokers"]], [(host, int(port))])


@check
async def records_keep_key_value_headers_and_timestamp(opened):
    topic, producer = await opened.topic(), await opened.producer()
    headers = [("a", b"1"), ("a", b"\xff"), ("b", b"")]
    told = await producer.send_and_wait(topic, b"value", key=b"key", partition=1, timestamp_ms=1_600_000_000_000, headers=headers)
    equal((told.partition, told.offset), (1, 0))
    await producer.send_and_wait(topic, None, key=b"key", partition=1)
    first, second = await read(await opened.consumer(topic), 2)
    assert isinstance(first, ConsumerRecord)
    equal((first.key, first.value, first.timestamp, list(first.headers)), (b"key", b"value", 1_600_000_000_000, headers))
    equal((second.offset, second.value), (1, None))


@check
async def an_idempotent_producer_writes_once_and_in_order(opened):
    topic, producer = await opened.topic(1), await opened.producer(enable_idempotence=True, linger_ms=2)
    waiting = [await producer.send(topic, str(number).encode()) for number in range(2000)]
    equal([(await each).offset for each in waiting], list(range(2000)))
    records = await read(await opened.consumer(topic), 2000)
    equal([int(record.value) for record in records], list(range(2000)))


@check
async def batches_of_every_codec_are_read_back(opened):
    topic = await opened.topic(1)
    for codec in CODECS:
        producer = await opened.producer(compression_type=codec, linger_ms=20)
        waiting = [await producer.send(topic, f"{codec}-{number}".encode() * 50) for number in range(20)]
        await asyncio.gather(*waiting)
    records = await read(await opened.consumer(topic), 20 * len(CODECS))
    equal([record.value for record in records], [f"{codec}-{number}".encode() * 50 for codec in CODECS for number in range(20)])


@check
async def a_batch_made_by_hand_is_sent(opened):
    topic, producer = await opened.topic(), await opened.producer()
    batch = producer.create_batch()
    for number in range(10):
        batch.append(key=None, value=str(number).encode(), timestamp=None)
    told = await (await producer.send_batch(batch, topic, partition=2))
    equal((told.partition, told.offset), (2, 0))
    equal([record.value for record in await read(await opened.consumer(topic), 10)], [str(n).encode() for n in range(10)])


@check
async def a_record_beyond_the_topics_limit_is_refused(opened):
    topic, producer = await opened.topic(**{"max.message.bytes": "1000"}), await opened.producer()
    await refused(MessageSizeTooLargeError, producer.send_and_wait(topic, b"x" * 2000))
    await producer.send_and_wait(topic, b"small")


@check
async def a_topic_is_made_by_sending_to_it(opened):
    topic, producer = f"aiokafka-auto-{uuid.uuid4().hex[:8]}", await opened.producer()
    equal((await producer.send_and_wait(topic, b"first")).offset, 0)
    equal((await (await opened.consumer(topic)).getone()).value, b"first")


@check
async def offsets_are_found_by_time_and_end(opened):
    topic, producer = await opened.topic(1), await opened.producer()
    for number in range(5):
        await producer.send_and_wait(topic, b"x", timestamp_ms=1_600_000_000_000 + number * 1000)
    consumer, place = await opened.consumer(topic), TopicPartition(topic, 0)
    equal(await consumer.beginning_offsets([place]), {place: 0})
    equal(await consumer.end_offsets([place]), {place: 5})
    found = await consumer.offsets_for_times({place: 1_600_000_002_500})
    equal((found[place].offset, found[place].timestamp), (3, 1_600_000_003_000))
    equal(await consumer.offsets_for_times({place: 1_700_000_000_000}), {place: None})


@check
async def seek_and_positions_out_of_range(opened):
    topic, producer = await opened.topic(1), await opened.producer()
    await asyncio.gather(*[await producer.send(topic, str(number).encode()) for number in range(10)])
    consumer, place = await opened.consumer(auto_offset_reset="none"), TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 7)
    equal((await consumer.getone()).offset, 7)
    await consumer.seek_to_beginning(place)
    equal((await consumer.getone()).offset, 0)
    consumer.seek(place, 1000)
    await refused(OffsetOutOfRangeError, consumer.getone())


@check
async def a_group_shares_partitions_and_rebalances(opened):
    topic, group = await opened.topic(4), f"g-{uuid.uuid4().hex[:8]}"
    settings = {"group_id": group, "session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
    one = await opened.consumer(topic, **settings)
    equal(len(one.assignment()), 4)
    two = await opened.consumer(topic, **settings)
    await until(lambda: len(one.assignment()) == 2 and len(two.assignment()) == 2)
    equal(len(one.assignment() | two.assignment()), 4)
    opened.clients.remove(two)
    await two.stop()
    await until(lambda: len(one.assignment()) == 4)


async def until(condition):
    while not condition():
        await asyncio.sleep(0.05)


@check
async def a_group_goes_on_from_what_it_committed(opened):
    topic, group = await opened.topic(1), f"g-{uuid.uuid4().hex[:8]}"
    producer, place = await opened.producer(), TopicPartition(topic, 0)
    for number in range(6):
        await producer.send_and_wait(topic, str(number).encode())
    async with Opened() as first:
        consumer = await first.consumer(topic, group_id=group)
        await read(consumer, 3)
        await consumer.commit({place: (3, "note")})
        equal(await consumer.committed(place), 3)
    consumer = await opened.consumer(topic, group_id=group)
    equal([record.offset for record in await read(consumer, 3)], [3, 4, 5])
    admin = await opened.admin()
    offsets = await admin.list_consumer_group_offsets(group)
    equal((offsets[place].offset, offsets[place].metadata), (3, "note"))
    assert group in [each[0] for each in await admin.list_consumer_groups()]
    (described,) = await admin.describe_consumer_groups([group])
    equal([(each[0], each[1], each[2]) for each in described.groups], [(0, group, "Stable")])


@check
async def a_pattern_finds_topics(opened):
    topic, producer = await opened.topic(1), await opened.producer()
    await producer.send_and_wait(topic, b"x")
    consumer = await opened.consumer(group_id=f"g-{uuid.uuid4().hex[:8]}")
    consumer.subscribe(pattern=f"^{topic}$")
    equal((await consumer.getone()).topic, topic)


@check
async def a_consumer_waits_for_what_is_written_later(opened):
    topic, producer = await opened.topic(1), await opened.producer()
    waiting = asyncio.ensure_future((await opened.consumer(topic)).getone())
    await asyncio.sleep(1)
    assert not waiting.done()
    await producer.send_and_wait(topic, b"late")
    equal((await waiting).value, b"late")


@check
async def a_transaction_is_committed(opened):
    topic = await opened.topic(1)
    producer = await opened.open(AIOKafkaProducer(bootstrap_servers=BROKER, transactional_id=f"t-{uuid.uuid4().hex[:8]}"))
    async with producer.transaction():
        await producer.send_and_wait(topic, b"x")
    consumer = await opened.consumer(topic, isolation_level="read_committed")
    equal((await consumer.getone()).value, b"x")


async def run_one(name, body):
    began, outcome, note = time.monotonic(), "PASS", ""
    try:
        async with asyncio.timeout(LIMIT_SECONDS), Opened() as opened:
            await body(opened)
    except (KafkaError, AssertionError, TimeoutError, LookupError, TypeError, ValueError, AttributeError) as error:
        outcome, note = "FAIL", f"{type(error).__name__}: {error}"
    print(f"{outcome} {name} | {time.monotonic() - began:.2f} {' '.join(note.split())}", flush=True)
    return outcome == "PASS"


async def main():
    return all([await run_one(name, body) for name, body in CHECKS.items()])


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main()) else 1)
