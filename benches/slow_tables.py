"""A thousand topics that get a record a second each: the broker's memory with their tables and without, reads of a bridge
that is warm, and what it costs to make all the tables later, from a cold start."""
import contextlib
import json
import sqlite3
import time

from clients import CLIENT_SECONDS, create_topics
from confluent_kafka import Producer
from servers import Floe
from settings import MIB

TOPICS, FAST_TOPICS = 1_000, 20
SECONDS, FAST_SECONDS = 90, 5
# Many commits of each table in the time that there is.
WITH_TABLES = ("iceberg.commit_interval_ms=15000",)
WITHOUT_TABLES = ("iceberg.enable=false",)
CATCH_UP_SECONDS = 240
GETS = 'floe_store_requests_total{kind="get",outcome="ok"}'
SEGMENTS = "floe_log_segment_bytes_count"


def run(settings, folder):
    topics, seconds = (FAST_TOPICS, FAST_SECONDS) if settings.fast else (TOPICS, SECONDS)
    with_tables = slow_topics(folder / "with", WITH_TABLES, topics, seconds)
    without = slow_topics(folder / "without", WITHOUT_TABLES, topics, seconds, catch_up)
    print(f"  {with_tables} {without}", flush=True)
    caught_up = without.pop("then")
    return [
        {"name": f"{topics:,} topics, a record a second each, for {seconds} s",
         "rounds": [{"floe": with_tables | caught_up, "no_table": without}]},
    ]


def slow_topics(folder, chosen, topics, seconds, then=None):
    with contextlib.ExitStack() as cleanup:
        floe = Floe(folder, settings=chosen)
        cleanup.callback(floe.stop)
        floe.start()
        names = create_topics(floe, topics)
        before = floe.counters()
        cpu = floe.cpu_seconds()
        send(floe, names, seconds)
        figures = {"peak_mib": floe.peak_bytes() / MIB, "cpu_percent": (floe.cpu_seconds() - cpu) / seconds * 100}
        after = floe.counters()
        figures["segments"] = after[SEGMENTS] - before[SEGMENTS]
        figures["warm_gets"] = after.get(GETS, 0) - before.get(GETS, 0)
        if then:
            figures["then"] = then(floe, topics)
        return figures


def send(floe, names, seconds):
    client = Producer({"bootstrap.servers": floe.address, "acks": "all", "linger.ms": 5, "log_level": 0})
    began = time.monotonic()
    for second in range(seconds):
        for number, name in enumerate(names):
            record = {"second": second, "topic": number, "text": f"{second * number:020}", "even": number % 2 == 0}
            client.produce(name, json.dumps(record).encode())
            client.poll(0)
        time.sleep(max(0.0, began + second + 1 - time.monotonic()))
    if client.flush(CLIENT_SECONDS):
        raise RuntimeError("not every record was acknowledged in time")


def catch_up(floe, topics):
    """Starts the broker again with tables, and waits until each has all."""
    floe.stop()
    objects = live_objects(floe)
    floe.settings = WITH_TABLES
    floe.start()
    began, cpu = time.monotonic(), floe.cpu_seconds()
    deadline = began + CATCH_UP_SECONDS
    while True:
        tables = json.loads(floe.get("/v1/tables"))
        if sum(table["table"] is not None and table["lag_records"] == 0 for table in tables) == topics:
            break
        if time.monotonic() > deadline:
            raise RuntimeError(f"tables are still behind: {tables[:3]}")
        time.sleep(0.5)
    gets = floe.counters().get(GETS, 0)
    return {
        "catch_up_gets": gets, "objects": objects, "catch_up_gets_per_object": gets / objects,
        "catch_up_s": time.monotonic() - began, "catch_up_cpu_s": floe.cpu_seconds() - cpu,
    }


def live_objects(floe):
    """Segments and merged objects that hold records, of a broker that does not run."""
    with contextlib.closing(sqlite3.connect(f"file:{floe.folder}/data/metadata.sqlite?mode=ro", uri=True)) as metadata:
        return metadata.execute("SELECT count(*) FROM objects WHERE dead_since_ms IS NULL").fetchone()[0]
