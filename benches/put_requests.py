"""What Floe asks of an object store: PUTs and their sizes at fixed rates and flat out, on SeaweedFS by S3.

There is no peer: Kafka keeps its log on a disk. The savings of the PUT budget are off, so that these are the figures of
a broker that has run for long, but in the row "budget saved up", which is the first minute of one. Runs are of 4 GiB,
so that their first and last seconds do not count (an eighth of that where a producer with its defaults is the limit); the
slowest takes more than an hour and is a bench of its own.

One producer: with its defaults it has 5 requests of 16 batches of 16 KiB under way at most, which the interval of a
rationed PUT limits to about 5 MiB/s; a tuned one has larger batches and requests.
"""
import contextlib
import shutil

from clients import RECORD_BYTES, create_topic, produce
from servers import Floe, start_s3
from settings import MIB

PARTITIONS = 16
BATCH_BYTES = 16_384
TUNED_BATCH_BYTES = 524_288
TUNED = ("max.request.size=8388608", "buffer.memory=134217728", "linger.ms=100")
NO_SAVINGS = ("flush.puts_saved_s=0",)
# what the row is called, MiB a second or None for as fast as the client can, whether it is tuned, the part of a run's
# bytes, Floe's settings
CASES = [
    ("32 MiB/s, tuned producer", 32, True, 1, NO_SAVINGS), ("flat out, tuned producer", None, True, 1, NO_SAVINGS),
    ("flat out", None, False, 1 / 8, NO_SAVINGS), ("flat out, budget saved up", None, False, 1 / 8, ()),
]
SLOW_CASES = [("1 MiB/s", 1, False, 1, NO_SAVINGS)]
PUTS = 'floe_store_requests_total{kind="put",outcome="%s"}'
PUT_BYTES = 'floe_store_bytes_total{kind="put"}'
SEGMENTS = "floe_log_segment_bytes_count"


def run(settings, folder):
    return rows_of(settings, folder, CASES)


def run_slowly(settings, folder):
    return rows_of(settings, folder, SLOW_CASES)


def rows_of(settings, folder, cases):
    rows = []
    for number, (title, rate, is_tuned, part, chosen) in enumerate(cases):
        here = folder / f"case{number}"
        with contextlib.ExitStack() as servers:
            # Each row's objects fill gigabytes of this disk.
            servers.callback(shutil.rmtree, here)
            environment = start_s3(here / "s3", servers)
            floe = Floe(here / "floe", environment("log"), chosen)
            servers.callback(floe.stop)
            floe.start()
            figures = measure(floe, int(settings.request_bytes * part), rate, is_tuned)
        print(f"  {title}: {figures}", flush=True)
        rows.append({"name": title, "rounds": [{"floe": figures}]})
    return rows


def measure(floe, byte_count, rate, is_tuned):
    """Produces so many bytes, at `rate` MiB a second or flat out; returns what it took."""
    topic = create_topic(floe, PARTITIONS)
    per_second = rate * MIB // RECORD_BYTES if rate else -1
    before, cpu = floe.counters(), floe.cpu_seconds()
    batch_bytes, properties = (TUNED_BATCH_BYTES, TUNED) if is_tuned else (BATCH_BYTES, ())
    seconds = produce(floe, topic, byte_count // RECORD_BYTES, batch_bytes, per_second, properties)
    cpu, after = floe.cpu_seconds() - cpu, floe.counters()
    outcomes = {outcome: after[PUTS % outcome] - before[PUTS % outcome] for outcome in ("ok", "failed", "unknown")}
    puts, gib = sum(outcomes.values()), byte_count / (1024 * MIB)
    return {
        "mb_per_s": byte_count / seconds / 1e6,
        "puts_per_s": puts / seconds,
        "segments_per_gib": (after[SEGMENTS] - before[SEGMENTS]) / gib,
        "puts_per_gib": puts / gib,
        "kib_per_put": (after[PUT_BYTES] - before[PUT_BYTES]) / 1024 / puts,
        "puts_not_ok": puts - outcomes["ok"],
        "cpu_s_per_gib": cpu / gib,
    }
