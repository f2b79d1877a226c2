"""What the benches do with a broker: topics, Kafka's own performance tools, and single records."""
import dataclasses
import itertools
import re
import time
import uuid

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from servers import tool
from settings import MIB

CLIENT_SECONDS = 60
# A slow disk syncs a hundred times a second.
LATENCY_SECONDS = 300
# How long the consumer tool waits for the next records, joining its group included.
CONSUMER_WAIT_MS = 120_000
RECORD_BYTES = 1024
# The client chooses.
ANY_PARTITION = -1
RATE = re.compile(r"(\d+) records sent, ([\d.,]+) records/sec")
PERCENTILES = re.compile(r"([\d.,]+) ms 50th, .*?([\d.,]+) ms 99th")


@dataclasses.dataclass(frozen=True)
class Report:
    """The last report of Kafka's producer tool, from its first record on: times from send to acknowledgement."""

    records_per_second: float
    p50_ms: float
    p99_ms: float


def create_topic(broker, partitions, tables=False, **config):
    """Creates a topic and returns its name. Floe keeps a table for it only where `tables` says so."""
    if broker.name == "floe":
        config |= {"iceberg.enable": "true" if tables else "false"}
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    name = f"bench_{uuid.uuid4().hex[:12]}"
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
    admin.create_topics([new])[name].result(CLIENT_SECONDS)
    return name


def create_topics(broker, count):
    """Creates topics of one partition and returns their names; which of Floe's have tables, its settings say."""
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    names = [f"bench_{number:04}" for number in range(count)]
    made = admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1) for name in names])
    for name in names:
        made[name].result(CLIENT_SECONDS)
    return names


def delete_topic(broker, name):
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.delete_topics([name])[name].result(CLIENT_SECONDS)


def produce(broker, topic, record_count, batch_bytes, records_per_second=-1, properties=()):
    """Kafka's producer tool with acks=all; returns the seconds of its last report, from its first record on."""
    report = produce_report(broker, topic, record_count, batch_bytes, records_per_second, properties)
    return record_count / report.records_per_second


def produce_report(
        broker, topic, record_count, batch_bytes, records_per_second=-1, properties=(), payloads=None):
    """As `produce`; returns the whole report. Records are random unless `payloads` names a file of them, one a line."""
    kind = ("--payload-file", payloads) if payloads else ("--record-size", RECORD_BYTES)
    text = tool(
        "ProducerPerformance", "--topic", topic, "--num-records", record_count, *kind,
        "--throughput", records_per_second, "--bootstrap-server", broker.address,
        "--command-property", "acks=all", f"batch.size={batch_bytes}", *properties)
    sent, rate = RATE.findall(text)[-1]
    if int(sent) != record_count:
        raise RuntimeError(f"{sent} of {record_count} records were acknowledged: {text[-1000:]}")
    figures = (rate, *PERCENTILES.findall(text)[-1])
    return Report(*(float(figure.replace(",", "")) for figure in figures))


def consume(broker, topic, record_count):
    """Kafka's consumer tool with a group; returns the seconds of its fetching, without joining the group."""
    text = tool(
        "ConsumerPerformance", "--topic", topic, "--num-records", record_count, "--bootstrap-server", broker.address,
        "--group", f"{topic}-group", "--hide-header", "--timeout", CONSUMER_WAIT_MS)
    fields = [field.strip() for field in text.strip().splitlines()[-1].split(",")]
    if int(fields[4]) < record_count:
        raise RuntimeError(f"{fields[4]} of {record_count} records came: {text}")
    return int(fields[7]) / 1000


def measured(broker, byte_count, work):
    """Runs work(), which returns its seconds; returns rate, the broker's CPU time per GiB and its peak memory."""
    broker.forget_peak()
    before = broker.cpu_seconds()
    seconds = work()
    cpu = broker.cpu_seconds() - before
    return {
        "mb_per_s": byte_count / seconds / 1e6,
        "cpu_s_per_gib": cpu / (byte_count / (1024 * MIB)),
        "peak_mib": broker.peak_bytes() / MIB,
    }


def record_latencies(broker, topic, count, outstanding, places=None):
    """Sends `count` records with `outstanding` of them unacknowledged at most; returns their seconds, sorted. They go
    to partitions of the topic that the client chooses, or to `places`: topics and partitions without end."""
    client = Producer({
        "bootstrap.servers": broker.address, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True,
        "log_level": 0,
    })
    value = b"x" * RECORD_BYTES
    seconds, waiting = [], 0
    places = places or itertools.repeat((topic, ANY_PARTITION))

    def send():
        nonlocal waiting
        name, partition = next(places)
        sent = time.perf_counter()

        def acknowledged(error, _):
            nonlocal waiting
            waiting -= 1
            if error:
                raise RuntimeError(str(error))
            seconds.append(time.perf_counter() - sent)

        client.produce(name, value, partition=partition, on_delivery=acknowledged)
        waiting += 1

    deadline = time.monotonic() + LATENCY_SECONDS
    warm_up = max(count // 10, 10)
    for _ in range(warm_up + count):
        send()
        while waiting >= outstanding:
            client.poll(1.0)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(seconds)} of {count} records were acknowledged in time")
    client.flush(CLIENT_SECONDS)
    return sorted(seconds[warm_up:])


def percentiles(sorted_seconds):
    """p50, p99 and p99.9 in milliseconds."""
    def at(share):
        return sorted_seconds[min(int(len(sorted_seconds) * share), len(sorted_seconds) - 1)] * 1000
    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999)}
