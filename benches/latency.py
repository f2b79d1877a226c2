"""Time from sending a record to its acknowledgement: Floe, Kafka as it is, and Kafka made to sync each record too.

The disk decides here, and it is not the same from one minute to the next: a probe of it runs before and after each
round, and a round counts only where both agree.
"""
import contextlib
import os
import time

from clients import create_topic, percentiles, record_latencies
from servers import Floe, Kafka

OUTSTANDING = (1, 5)
PROBE_BYTES = 4096
# The probe's p99 before and after a round may differ by less than this factor.
PROBE_FACTOR = 2.0
# Rounds that do not count are tried again, up to so many times the rounds that are wanted.
TRIES_PER_ROUND = 3


def run(settings, folder):
    with contextlib.ExitStack() as cleanup:
        floe, kafka = Floe(folder / "floe"), Kafka(folder / "kafka")
        for broker in (floe, kafka):
            cleanup.callback(broker.stop)
            broker.start()
        peers = {
            "floe": (floe, create_topic(floe, 1)),
            "kafka": (kafka, create_topic(kafka, 1)),
            "kafka_fsync": (kafka, create_topic(kafka, 1, **{"flush.messages": "1"})),
        }
        for broker, topic in peers.values():
            record_latencies(broker, topic, settings.latency_records, 1)
        return [row(settings, folder, peers, outstanding) for outstanding in OUTSTANDING]


def row(settings, folder, peers, outstanding):
    """Rounds until enough of them count, or until the disk has had its chances."""
    rounds = []
    for turn in range(settings.rounds * TRIES_PER_ROUND):
        before = probe(folder, settings.probe_writes)
        figures = {}
        for name in rotated(list(peers), turn):
            broker, topic = peers[name]
            seconds = record_latencies(broker, topic, settings.latency_records, outstanding)
            figures[name] = percentiles(seconds)
        after = probe(folder, settings.probe_writes)
        p99 = sorted((before["p99_ms"], after["p99_ms"]))
        counts = p99[1] < PROBE_FACTOR * p99[0]
        figures |= {"probe_before": before, "probe_after": after, "counts": counts}
        print(f"  {outstanding} outstanding{'' if counts else ', does not count'}: {figures}", flush=True)
        rounds.append(figures)
        if sum(each["counts"] for each in rounds) == settings.rounds:
            break
    title = "one record at a time" if outstanding == 1 else f"{outstanding} records outstanding"
    return {"name": title, "rounds": rounds}


def rotated(names, turn):
    start = turn % len(names)
    return names[start:] + names[:start]


def probe(folder, writes):
    """Percentiles of appending a page to a file and waiting for the disk, as little as a durable record can cost."""
    path = folder / "probe"
    seconds = []
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        for _ in range(writes):
            began = time.perf_counter()
            os.write(file, b"x" * PROBE_BYTES)
            os.fdatasync(file)
            seconds.append(time.perf_counter() - began)
    finally:
        os.close(file)
        path.unlink()
    return percentiles(sorted(seconds))
