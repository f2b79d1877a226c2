"""What tables cost producers: the same records to a topic with a table and to one without, in turns on one broker. The
table is looked at all the time, so that the bridge never rests."""
import contextlib
import json
import random
import threading

from clients import create_topic, delete_topic, produce_report
from servers import Floe

PARTITIONS = 16
BATCH_BYTES = 131_072
PAYLOADS = 1_000
LOOK_PAUSE_SECONDS = 0.2
# The second row's rate, as a share of what the topic without a table takes flat out.
PACED_SHARE = 0.5
PACED_SECONDS = 20


def run(settings, folder):
    payloads = folder / "payloads.json"
    record_bytes = write_payloads(payloads)
    records = settings.throughput_bytes // record_bytes
    with contextlib.ExitStack() as cleanup:
        floe = Floe(folder / "floe")
        cleanup.callback(floe.stop)
        floe.start()
        # The client's code is compiled while it runs: what comes first would be measured cold.
        rate = measure(floe, False, records, payloads)["krecords_per_s"] * 1000
        flat_out = rounds_of(settings, floe, records, payloads, -1)
        paced = int(rate * PACED_SHARE)
        steady = rounds_of(settings, floe, min(records, paced * PACED_SECONDS), payloads, paced)
    return [
        {"name": f"flat out, {record_bytes} bytes of JSON a record", "rounds": flat_out},
        {"name": f"half of that rate, {paced:,} a second", "rounds": steady},
    ]


def rounds_of(settings, floe, records, payloads, per_second):
    rounds = []
    for turn in range(settings.rounds):
        pair = {}
        for with_table in (True, False) if turn % 2 == 0 else (False, True):
            name = "floe" if with_table else "no_table"
            pair[name] = measure(floe, with_table, records, payloads, per_second)
        print(f"  {per_second}: {pair}", flush=True)
        rounds.append(pair)
    return rounds


def measure(floe, with_table, records, payloads, per_second=-1):
    topic = create_topic(floe, PARTITIONS, with_table)
    looker = Looker(floe, topic) if with_table else contextlib.nullcontext()
    with looker:
        report = produce_report(floe, topic, records, BATCH_BYTES, per_second, payloads=payloads)
    if with_table:
        # The next run must not pay for this one's table.
        floe.look(topic)
    delete_topic(floe, topic)
    return {"krecords_per_s": report.records_per_second / 1000, "p50_ms": report.p50_ms, "p99_ms": report.p99_ms}


class Looker:
    """Loads a topic's table again and again while a block runs, if there is one already."""

    def __init__(self, floe, topic):
        self.floe, self.topic, self.ended = floe, topic, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        prefix = json.loads(self.floe.get("/iceberg/v1/config"))["overrides"]["prefix"]
        while not self.ended.wait(LOOK_PAUSE_SECONDS):
            tables = json.loads(self.floe.get("/v1/tables"))
            if any(table["topic"] == self.topic and table["table"] for table in tables):
                self.floe.get(f"/iceberg/v1/{prefix}/namespaces/kafka/tables/{self.topic}")

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def write_payloads(path):
    """A file of JSON records, one a line; returns their bytes on average."""
    source = random.Random(1)
    lines = []
    for number in range(PAYLOADS):
        record = {
            "id": number, "customer": f"customer {source.randrange(10_000)}", "carrier": source.choice("ABCDEF") * 2,
            "origin": source.choice(["EWR", "JFK", "LGA"]), "price": source.randrange(100_000) / 100,
            "delay": source.choice([None, source.randrange(120)]), "paid": source.random() < 0.5,
            "address": {"street": f"street {source.randrange(500)}", "zip": f"{source.randrange(100_000):05}"},
            "items": [{"sku": source.randrange(5_000), "count": source.randrange(9)} for _ in range(3)],
            "note": "%032x" % source.getrandbits(128),
        }
        lines.append(json.dumps(record, separators=(",", ":")))
    path.write_text("\n".join(lines) + "\n")
    return sum(map(len, lines)) // len(lines)
