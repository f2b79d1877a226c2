"""Ten thousand partitions and a thousand connections: what they cost an idle broker, and what a client notices of them.

Beside each other are a Floe that has them, one that has ten partitions and one connection (`few`), and a Kafka that has
them too. Each round has: the idle broker's CPU and memory, latency one record at a time with ten partitions written and
then with all of them in turn, and how long it takes to write to all of them at once. A topic of 1,000 partitions is
made ten times. Floe keeps a table for each topic, as it does where nobody says otherwise.
"""
import contextlib
import itertools
import random
import socket
import time

from clients import ANY_PARTITION, CLIENT_SECONDS, RECORD_BYTES, create_topic, percentiles, record_latencies
from confluent_kafka import Producer
from servers import FIRST_REQUEST, Floe, Kafka
from settings import MIB

TOPICS, FAST_TOPICS = 10, 2
TOPIC_PARTITIONS, FAST_TOPIC_PARTITIONS = 1_000, 20
WRITTEN_PARTITIONS = 10
CONNECTIONS, FAST_CONNECTIONS = 1_000, 20
RECORDS, FAST_RECORDS = 1_000, 50
# What was written just now is merged then.
SETTLE_SECONDS = 2


def run(settings, folder):
    topics, partitions = (FAST_TOPICS, FAST_TOPIC_PARTITIONS) if settings.fast else (TOPICS, TOPIC_PARTITIONS)
    records = FAST_RECORDS if settings.fast else RECORDS
    with contextlib.ExitStack() as cleanup:
        floe, few, kafka = brokers = [Floe(folder / "floe"), Floe(folder / "few"), Kafka(folder / "kafka")]
        for broker in brokers:
            cleanup.callback(broker.stop)
            broker.start()
        topics_of = {floe: [], kafka: []}
        made = [make_topic(turn, topics_of, partitions) for turn in range(topics)]
        print(f"  a topic of {partitions} partitions: {made}", flush=True)
        written = {broker: create_topic(broker, WRITTEN_PARTITIONS, tables=True) for broker in brokers}
        for broker in (floe, kafka):
            cleanup.enter_context(connections(broker, FAST_CONNECTIONS if settings.fast else CONNECTIONS))
        names = {floe: "floe", few: "few", kafka: "kafka"}
        places = {broker: Places(own, partitions) for broker, own in topics_of.items()}
        for broker in brokers:
            record_latencies(broker, written[broker], records, 1)
        rounds = []
        for turn in range(settings.rounds):
            figures = dict(zip(names.values(), idle(settings, brokers)))
            for broker in brokers[turn % len(brokers):] + brokers[:turn % len(brokers)]:
                figures[names[broker]] |= measure(broker, written[broker], records, places.get(broker))
            print(f"  {figures}", flush=True)
            rounds.append(figures)
        rows = [
            {"name": f"{topics * partitions:,} partitions", "rounds": rounds},
            {"name": f"{partitions:,} partitions", "rounds": made},
        ]
        return rows


def make_topic(turn, topics_of, partitions):
    """Makes a topic on each broker, until its last partition takes a record, and adds it to the broker's."""
    brokers, made = list(topics_of), {}
    for broker in brokers if turn % 2 == 0 else brokers[::-1]:
        began = time.monotonic()
        topic = create_topic(broker, partitions, tables=True)
        answered = time.monotonic()
        record_latencies(broker, topic, 1, 1, itertools.repeat((topic, partitions - 1)))
        made[broker.name] = {"make_s": answered - began, "usable_s": time.monotonic() - began}
        topics_of[broker].append(topic)
    return made


class Places:
    """All partitions of a broker's topics, in an order that knows no topic; `turns` goes on from round to round."""

    def __init__(self, topics, partitions):
        self.topics = topics
        self.all = [(topic, number) for topic in topics for number in range(partitions)]
        random.Random(1).shuffle(self.all)
        self.turns = itertools.cycle(self.all)


@contextlib.contextmanager
def connections(broker, count):
    """So many connections that have said hello and stay open."""
    host, port = broker.address.split(":")
    with contextlib.ExitStack() as cleanup:
        for _ in range(count):
            connection = cleanup.enter_context(socket.create_connection((host, int(port)), timeout=CLIENT_SECONDS))
            connection.sendall(FIRST_REQUEST)
            if not connection.recv(1 << 16):
                raise RuntimeError(f"{broker.name} has closed a connection")
        yield


def idle(settings, brokers):
    """Figures of brokers that all have nothing to do, in their order."""
    time.sleep(SETTLE_SECONDS)
    before = [broker.cpu_seconds() for broker in brokers]
    time.sleep(settings.idle_seconds)
    return [{
        "idle_cpu_percent": (broker.cpu_seconds() - cpu) / settings.idle_seconds * 100,
        "idle_mib": broker.resident_bytes() / MIB,
    } for broker, cpu in zip(brokers, before)]


def measure(broker, topic, records, places):
    """Figures of a broker, with `places` too where it has many partitions."""
    figures = percentiles(record_latencies(broker, topic, records, 1, itertools.repeat((topic, ANY_PARTITION))))
    if places:
        all_written = percentiles(record_latencies(broker, None, records, 1, places.turns))
        figures |= {f"all_{key}": value for key, value in all_written.items()}
        figures["all_at_once_s"] = write_all(broker, places)
    return figures


def write_all(broker, places):
    """Seconds until each of the partitions has taken a record, all sent at once."""
    client = Producer({"bootstrap.servers": broker.address, "acks": "all", "log_level": 0})
    failures = []

    def answered(error, _):
        if error:
            failures.append(error)

    # What the client must know of the topics, it learns before.
    for topic in places.topics:
        client.list_topics(topic, CLIENT_SECONDS)
    began = time.monotonic()
    for topic, partition in places.all:
        client.produce(topic, b"x" * RECORD_BYTES, partition=partition, on_delivery=answered)
    if client.flush(CLIENT_SECONDS) or failures:
        raise RuntimeError(f"not every partition took a record: {failures[:3]}")
    return time.monotonic() - began
