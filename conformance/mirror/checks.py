"""What MirrorMaker 2 has brought from Kafka to Floe: checks.py KAFKA FLOE HTTP FOLDER MIRRORMAKER...

Prints a line `PASS NAME | SECONDS` or `FAIL NAME | SECONDS WHY` for each check, in an order in which they build on each other.
"""
import json
import pathlib
import signal
import subprocess
import sys
import threading
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from pyiceberg.catalog import load_catalog

ORDERS, STATE, GROUP = "orders", "state", "billing"
PARTITIONS = 3
CONFIGS = {"retention.ms": "86400000", "max.message.bytes": "2000000"}
FIRST, LIVE_PER_SECOND, AFTER = 2_000, 200, 100
# Records of an earlier time than this would leave both sides by retention.
BEGAN_MS = int(time.time() * 1000)
WAIT_SECONDS = 180
POLL_SECONDS = 0.5
# Clients' log lines would stand between the checks' own.
QUIET = {"log_level": 0}


class Writer:
    """Sends orders, numbered from 0, and counts those that are acknowledged."""

    def __init__(self, address):
        self.client = Producer({"bootstrap.servers": address, "linger.ms": 5, "enable.idempotence": True, **QUIET})
        self.sent, self.acknowledged = 0, 0

    def send(self, count):
        for _ in range(count):
            number = self.sent
            self.client.produce(
                ORDERS, json.dumps({"n": number}), key=f"k{number % 97}", timestamp=BEGAN_MS + number,
                headers=[("number", str(number).encode()), ("empty", None)], on_delivery=self.delivered)
            self.sent += 1
            self.client.poll(0)

    def delivered(self, error, _):
        assert error is None, error
        self.acknowledged += 1

    def end(self):
        assert self.client.flush(WAIT_SECONDS) == 0, "not every record was acknowledged"


def read_all(address, topic):
    """Every record of a topic, by partition: (key, value, timestamp, headers)."""
    client = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False,
                       "isolation.level": "read_committed", "enable.partition.eof": True, **QUIET})
    try:
        count = len(client.list_topics(topic, timeout=30).topics[topic].partitions)
        client.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
        found, ended = {partition: [] for partition in range(count)}, set()
        deadline = time.monotonic() + WAIT_SECONDS
        while len(ended) < count:
            assert time.monotonic() < deadline, "no end of the topic"
            record = client.poll(1)
            if record is None:
                continue
            if record.error():
                ended.add(record.partition())
                continue
            found[record.partition()].append((record.key(), record.value(), record.timestamp(), record.headers()))
        return found
    finally:
        client.close()


def count(records):
    return sum(map(len, records.values()))


def numbers(values):
    return [json.loads(value)["n"] for value in values]


def consume(address, upto=None):
    """What the group reads from where it is: until it has so many, or until nothing comes for a while."""
    client = Consumer({"bootstrap.servers": address, "group.id": GROUP, "auto.offset.reset": "earliest",
                       "enable.auto.commit": False, **QUIET})
    client.subscribe([ORDERS])
    found, quiet_since = [], time.monotonic()
    patience = WAIT_SECONDS if upto else 15
    while (upto is None or len(found) < upto) and time.monotonic() - quiet_since < patience:
        record = client.poll(1)
        if record is not None and not record.error():
            found.append(record.value())
            quiet_since = time.monotonic()
    client.commit(asynchronous=False)
    client.close()
    return numbers(found)


def until(what, condition):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(POLL_SECONDS)


class Checks:
    def __init__(self, kafka, floe, http, folder, maker):
        self.kafka, self.floe, self.http, self.folder, self.maker_command = kafka, floe, http, folder, maker
        self.maker, self.writer, self.live = None, Writer(kafka), None

    def start_maker(self):
        log = (self.folder / "mirrormaker.log").open("ab")
        self.maker = subprocess.Popen(self.maker_command, stdout=log, stderr=log)

    def end_maker(self, number):
        self.maker.send_signal(number)
        self.maker.wait(WAIT_SECONDS)
        self.maker = None

    def floe_has(self, topic):
        return topic in AdminClient({"bootstrap.servers": self.floe, **QUIET}).list_topics(timeout=30).topics

    def write_live(self, stop):
        while not stop.is_set():
            self.writer.send(LIVE_PER_SECOND // 10)
            time.sleep(0.1)

    def topics_come_over_with_partitions_and_configs(self):
        admin = AdminClient({"bootstrap.servers": self.kafka, **QUIET})
        made = admin.create_topics([
            NewTopic(ORDERS, PARTITIONS, 1, config=CONFIGS),
            NewTopic(STATE, 1, 1, config={"cleanup.policy": "compact"})])
        for each in made.values():
            each.result(WAIT_SECONDS)
        self.writer.send(FIRST)
        self.writer.end()
        for number in range(50):
            self.writer.client.produce(STATE, f"v{number}", key=f"k{number % 5}")
        self.writer.end()
        stop = threading.Event()
        self.live = (threading.Thread(target=self.write_live, args=(stop,)), stop)
        self.live[0].start()
        self.start_maker()
        until("the topics do not come", lambda: self.floe_has(ORDERS) and self.floe_has(STATE))
        other = AdminClient({"bootstrap.servers": self.floe, **QUIET})
        topics = other.list_topics(timeout=30).topics
        assert [len(topics[name].partitions) for name in (ORDERS, STATE)] == [PARTITIONS, 1]

        def configs(name):
            resource = ConfigResource(ConfigResource.Type.TOPIC, name)
            return {key: entry.value for key, entry in other.describe_configs([resource])[resource].result(30).items()}

        until("configs differ", lambda: CONFIGS.items() <= configs(ORDERS).items())
        until("its policy differs", lambda: configs(STATE)["cleanup.policy"] == "compact")

    def records_come_while_producers_go_on(self):
        until("records do not come", lambda: count(read_all(self.floe, ORDERS)) > FIRST)

    def a_killed_mirror_goes_on_and_doubles_nothing(self):
        self.end_maker(signal.SIGKILL)
        time.sleep(2)
        self.start_maker()
        seen = count(read_all(self.floe, ORDERS))
        until("nothing more comes", lambda: count(read_all(self.floe, ORDERS)) > seen + LIVE_PER_SECOND)
        values = [record[1] for records in read_all(self.floe, ORDERS).values() for record in records]
        assert len(values) == len(set(values)), f"{len(values) - len(set(values))} are doubled"

    def keys_values_timestamps_headers_and_order_are_the_same(self):
        thread, stop = self.live
        stop.set()
        thread.join()
        self.writer.end()
        assert self.writer.sent == self.writer.acknowledged
        until("not all come", lambda: count(read_all(self.floe, ORDERS)) >= self.writer.sent)
        assert read_all(self.floe, ORDERS) == read_all(self.kafka, ORDERS)

    def a_compacted_topic_has_the_newest_record_of_each_key(self):
        def newest(address):
            return {record[0]: record[1:] for records in read_all(address, STATE).values() for record in records}

        assert newest(self.floe) == newest(self.kafka)

    def a_group_goes_on_where_it_was(self):
        before = consume(self.kafka, self.writer.sent)
        assert sorted(before) == list(range(self.writer.sent))
        admin = AdminClient({"bootstrap.servers": self.floe, **QUIET})
        asked = [ConsumerGroupTopicPartitions(GROUP)]

        def offsets():
            found = admin.list_consumer_group_offsets(asked)[GROUP].result(30).topic_partitions
            return {each.partition: each.offset for each in found if each.topic == ORDERS}

        until("the group's offsets do not come", lambda: len(offsets()) == PARTITIONS)
        # What has come is older at first, and gets newer.
        settled = offsets()
        for _ in range(10):
            time.sleep(2)
            if offsets() == settled and min(settled.values()) > 0:
                break
            settled = offsets()
        self.end_maker(signal.SIGTERM)
        moved = Writer(self.floe)
        moved.sent = self.writer.sent
        moved.send(AFTER)
        moved.end()
        after = consume(self.floe)
        assert set(range(self.writer.sent, moved.sent)) <= set(after), "what came after the move is missing"
        again = len(after) - AFTER
        print(f"the group read {again} of {self.writer.sent} records again", file=sys.stderr)
        assert again < self.writer.sent / 2, f"it began {again} records before its end"
        self.writer.sent = moved.sent

    def its_table_has_every_record(self):
        catalog = load_catalog("floe", type="rest", uri=f"http://{self.http}/iceberg")
        rows = catalog.load_table(f"kafka.{ORDERS}").scan(selected_fields=("n",)).to_arrow().column("n").to_pylist()
        assert sorted(rows) == list(range(self.writer.sent)), f"{len(rows)} rows of {self.writer.sent} records"


ORDER = [
    Checks.topics_come_over_with_partitions_and_configs, Checks.records_come_while_producers_go_on,
    Checks.a_killed_mirror_goes_on_and_doubles_nothing, Checks.keys_values_timestamps_headers_and_order_are_the_same,
    Checks.a_compacted_topic_has_the_newest_record_of_each_key, Checks.a_group_goes_on_where_it_was, Checks.its_table_has_every_record,
]


def main():
    kafka, floe, http, folder, *maker = sys.argv[1:]
    checks, failed = Checks(kafka, floe, http, pathlib.Path(folder), maker), 0
    try:
        for check in ORDER:
            began, why = time.monotonic(), ""
            try:
                check(checks)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
            failed += bool(why)
            name = check.__name__.replace("_", " ")
            print(f"{'FAIL' if why else 'PASS'} {name} | {time.monotonic() - began:.1f} {' '.join(why.split())}", flush=True)
    finally:
        if checks.live:
            checks.live[1].set()
        if checks.maker:
            checks.maker.kill()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
