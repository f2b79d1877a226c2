"""How long a group of many members takes to settle: Floe beside Kafka, both with their defaults, in turns.

A group has settled when every partition is owned by exactly one member, as the members themselves see it, and the
broker describes it as stable with all its members. Measured from the first member's start, and from when one member
leaves. The members are librdkafka's consumers, all in this process; the topic is empty.
"""
import contextlib
import itertools
import time
import uuid

from clients import create_topic
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient
from servers import DELAY, Floe, Kafka
from transactions import CHANGE_KINDS, CHANGES

DEFAULT_DELAY_MS = 3_000
# Protocol, what the row is called, members.
GROUPS = [("consumer", "KIP-848", 100), ("classic", "classic", 50)]
FAST_MEMBERS = 5
PARTITIONS, FAST_PARTITIONS = 1_000, 20
# A round takes half a minute.
FULL_ROUNDS = 3
SETTLE_SECONDS = 180
POLL_SECONDS = 0.01
HEARTBEAT_SECONDS, FAST_HEARTBEAT_SECONDS = 60, 6
HEARTBEATS = 'floe_kafka_requests_total{api="%s"}'
HEARTBEAT_APIS = {"consumer": "ConsumerGroupHeartbeat", "classic": "Heartbeat"}


def run(settings, folder):
    partitions = FAST_PARTITIONS if settings.fast else PARTITIONS
    with contextlib.ExitStack() as cleanup:
        brokers = [
            Floe(folder / "floe", settings=(f"kafka.{DELAY}={DEFAULT_DELAY_MS}",)),
            Kafka(folder / "kafka", {DELAY: str(DEFAULT_DELAY_MS)}),
        ]
        topics = {}
        for broker in brokers:
            cleanup.callback(broker.stop)
            broker.start()
            topics[broker.name] = create_topic(broker, partitions)
            # Makes Kafka's topic of offsets, and compiles its code.
            measure(broker, topics[broker.name], "consumer", FAST_MEMBERS, partitions)
        rows = []
        for protocol, title, members in GROUPS:
            members = FAST_MEMBERS if settings.fast else members
            rounds = []
            for turn in range(min(settings.rounds, FULL_ROUNDS)):
                order = brokers if turn % 2 == 0 else brokers[::-1]
                pair = {broker.name: measure(broker, topics[broker.name], protocol, members, partitions)
                        for broker in order}
                print(f"  {title}: {pair}", flush=True)
                rounds.append(pair)
            rows.append({"name": f"{title}, {members} members, {partitions:,} partitions", "rounds": rounds})
        return rows


def run_heartbeats(settings, folder):
    """What a settled group costs while nothing changes."""
    partitions = FAST_PARTITIONS if settings.fast else PARTITIONS
    rows = []
    with contextlib.ExitStack() as cleanup:
        floe = Floe(folder / "floe")
        cleanup.callback(floe.stop)
        floe.start()
        topic = create_topic(floe, partitions)
        for protocol, title, count in GROUPS:
            count = FAST_MEMBERS if settings.fast else count
            with Group(floe, topic, protocol, count, partitions) as group:
                group.settle(count)
                figures = quiet(floe, group, FAST_HEARTBEAT_SECONDS if settings.fast else HEARTBEAT_SECONDS)
            print(f"  {title}: {figures}", flush=True)
            rows.append({"name": f"{title}, {count} members", "rounds": [{"floe": figures}]})
    return rows


def quiet(floe, group, seconds):
    before, cpu = floe.counters(), floe.cpu_seconds()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        group.poll()
    cpu, after = floe.cpu_seconds() - cpu, floe.counters()
    heartbeats = HEARTBEATS % HEARTBEAT_APIS[group.protocol]
    changes = {kind: after[CHANGES % kind] - before[CHANGES % kind] for kind in CHANGE_KINDS}
    return {
        "seconds": seconds, "heartbeats": after[heartbeats] - before[heartbeats],
        "fact_changes": changes["facts"], "other_changes": sum(changes.values()) - changes["facts"],
        "cpu_percent": cpu / seconds * 100,
    }


def measure(broker, topic, protocol, members, partitions):
    cpu = broker.cpu_seconds()
    with Group(broker, topic, protocol, members, partitions) as group:
        settled = group.settle(members)
        began = time.monotonic()
        group.leave()
        left = group.settle(members - 1) - began
        return {"settle_s": settled - group.began, "leave_s": left, "cpu_s": broker.cpu_seconds() - cpu}


class Group:
    """Members of one group, who start together."""

    def __init__(self, broker, topic, protocol, count, partitions):
        self.protocol, self.partitions = protocol, set(range(partitions))
        self.name = f"group_{broker.name}_{uuid.uuid4().hex[:12]}"
        self.admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        self.began = time.monotonic()
        self.members = []
        for _ in range(count):
            self.members.append(Consumer({
                "bootstrap.servers": broker.address, "group.id": self.name, "group.protocol": protocol,
                "enable.auto.commit": False, "log_level": 0,
            }))
            self.members[-1].subscribe([topic])

    def settle(self, count):
        """Waits until `count` members share all partitions; returns the moment."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            self.poll()
            seen = time.monotonic()
            if self.is_shared() and self.is_stable(count) and self.is_shared():
                return seen
        owned = [len(member.assignment()) for member in self.members]
        raise RuntimeError(f"{self.name} has not settled in {SETTLE_SECONDS} s, its members own {owned}")

    def poll(self):
        for member in self.members:
            record = member.poll(0)
            if record is not None and record.error():
                raise KafkaException(record.error())
        time.sleep(POLL_SECONDS)

    def is_shared(self):
        owned = list(itertools.chain.from_iterable(member.assignment() for member in self.members))
        return len(owned) == len(self.partitions) and {place.partition for place in owned} == self.partitions

    def is_stable(self, count):
        with contextlib.suppress(KafkaException):
            group = self.admin.describe_consumer_groups([self.name])[self.name].result()
            return group.state == ConsumerGroupState.STABLE and len(group.members) == count
        return False

    def leave(self):
        self.members.pop().close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members:
            member.close()
