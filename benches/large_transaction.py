"""One commit of a transaction over 10,000 partitions, and what other producers notice of it: the time from send to
acknowledgement of their records, before it began and while it was under way."""
import contextlib
import threading
import time

from clients import CLIENT_SECONDS, RECORD_BYTES, create_topic, percentiles
from confluent_kafka import Producer
from servers import Floe
from transactions import PARTITIONS, transactional

LARGE_PARTITIONS, FAST_LARGE_PARTITIONS = 10_000, 200
# How many of them a topic has.
TOPIC_PARTITIONS = 1_000
RECORDS_PER_SECOND = 500
WARM_UP_SECONDS, BEFORE_SECONDS = 1, 3


def run(settings, folder):
    partitions = FAST_LARGE_PARTITIONS if settings.fast else LARGE_PARTITIONS
    with contextlib.ExitStack() as cleanup:
        floe = Floe(folder / "floe")
        cleanup.callback(floe.stop)
        floe.start()
        of_topic = min(partitions, TOPIC_PARTITIONS)
        topics = [create_topic(floe, of_topic) for _ in range(partitions // of_topic)]
        places = [(topic, number) for topic in topics for number in range(of_topic)]
        others = create_topic(floe, PARTITIONS)
        client = transactional(floe, topics[0])
        rounds = [measure(floe, client, places, others) for _ in range(settings.rounds)]
    print(f"  {rounds}", flush=True)
    return [{"name": f"{len(places):,} partitions", "rounds": rounds}]


def measure(floe, client, places, topic):
    with Others(floe, topic) as others:
        time.sleep(WARM_UP_SECONDS + BEFORE_SECONDS)
        began = time.perf_counter()
        client.begin_transaction()
        for name, partition in places:
            client.produce(name, b"x", partition=partition)
        if client.flush(CLIENT_SECONDS):
            raise RuntimeError("not every record of the transaction was acknowledged in time")
        written = time.perf_counter()
        client.commit_transaction(CLIENT_SECONDS)
        committed = time.perf_counter()
    return {
        "floe": {"commit_ms": (committed - written) * 1000, "write_ms": (written - began) * 1000,
                 **others.between(written, committed)},
        "before": others.between(began - BEFORE_SECONDS, began),
        "writing": others.between(began, written),
    }


class Others:
    """Sends records at a steady rate while a block runs, whatever becomes of those before."""

    def __init__(self, broker, topic):
        self.topic, self.times, self.failures, self.ended = topic, [], [], threading.Event()
        self.client = Producer({
            "bootstrap.servers": broker.address, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True,
            "log_level": 0,
        })
        self.threads = [threading.Thread(target=work) for work in (self.send, self.take_answers)]

    def send(self):
        began = time.perf_counter()
        number = 0
        while not self.ended.is_set():
            due = began + number / RECORDS_PER_SECOND
            time.sleep(max(0.0, due - time.perf_counter()))
            self.client.produce(
                self.topic, b"x" * RECORD_BYTES, partition=number % PARTITIONS, on_delivery=self.answered(due))
            number += 1

    def answered(self, sent):
        def note(error, _):
            if error:
                self.failures.append(error)
            self.times.append((sent, time.perf_counter() - sent))
        return note

    def take_answers(self):
        while not self.ended.is_set():
            self.client.poll(0.1)

    def between(self, began, ended):
        """Percentiles of the records that were sent, or still waited, in that time."""
        seconds = [took for sent, took in self.times if sent < ended and sent + took > began]
        if not seconds:
            raise RuntimeError("the other producers sent nothing meanwhile")
        return {f"others_{key}": value for key, value in percentiles(sorted(seconds)).items()} | {
            "others_records": len(seconds)}

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        if self.client.flush(CLIENT_SECONDS) or self.failures:
            raise RuntimeError(f"not every record was acknowledged: {self.failures[:3]}")
