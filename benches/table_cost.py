"""What a topic's table costs on an object store: requests of a commit, and its bytes beside those of the log.

The flights of the demo as JSON, in pieces a second apart, and a look behind each: every look has to commit. Folds of what
that leaves are waited for and counted.
"""
import contextlib
import json
import pathlib
import subprocess
import time

from clients import CLIENT_SECONDS, create_topic
from confluent_kafka import Producer
from servers import ROOT, Floe, load_script, start_s3
from settings import MIB

PIECES, FAST_PIECES = 60, 3
PIECE_SECONDS = 1
PIECE_RECORDS, FAST_PIECE_RECORDS = 5_000, 100
FLIGHTS = ROOT / ".tools" / "flights"
REQUESTS = 'floe_store_requests_total{kind="%s",outcome="ok"}'
LOG_BYTES = "floe_log_segment_bytes_sum"


def run(settings, folder):
    pieces, count = (FAST_PIECES, FAST_PIECE_RECORDS) if settings.fast else (PIECES, PIECE_RECORDS)
    records = flights(pieces * count)
    with contextlib.ExitStack() as cleanup:
        environment = start_s3(folder / "s3", cleanup)
        floe = Floe(folder / "floe", environment("tables"))
        cleanup.callback(floe.stop)
        floe.start()
        topic = create_topic(floe, 1, tables=True)
        client = Producer({"bootstrap.servers": floe.address, "acks": "all", "linger.ms": 5, "log_level": 0})
        before = floe.counters()
        for at in range(0, len(records), count):
            for record in records[at:at + count]:
                client.produce(topic, record)
                client.poll(0)
            if client.flush(CLIENT_SECONDS):
                raise RuntimeError("not every record was acknowledged in time")
            floe.look(topic)
            time.sleep(PIECE_SECONDS)
        floe.settle()
        table, = (each for each in json.loads(floe.get("/v1/tables")) if each["topic"] == topic)
        after = floe.counters()
    log_bytes = after[LOG_BYTES] - before[LOG_BYTES]
    figures = {
        "commits": table["commits"],
        "puts_per_commit": table["puts"] / table["commits"],
        "gets_per_commit": (after.get(REQUESTS % "get", 0) - before.get(REQUESTS % "get", 0)) / table["commits"],
        "log_mib": log_bytes / MIB,
        "table_bytes_per_log_byte": table["bytes"] / log_bytes,
        "files": table["files"],
    }
    print(f"  {figures}", flush=True)
    return [{"name": f"{len(records):,} flights, {pieces} looks", "rounds": [{"floe": figures}]}]


def flights(count):
    """The first flights, as the demo sends them."""
    demo = ROOT / "scripts"
    if not FLIGHTS.exists():
        FLIGHTS.mkdir(parents=True)
        subprocess.run(
            ["pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary=:all:", "--dest", FLIGHTS,
             "--requirement", demo / "requirements-demo.txt"], check=True)
    data = load_script("demo_data.py")
    found = []
    for flight in data.read_flights(pathlib.Path(FLIGHTS)):
        found.append(json.dumps(flight).encode())
        if len(found) == count:
            return found
    raise RuntimeError(f"there are only {len(found)} flights")
