"""What Floe asks of an object store: PUTs and their sizes at fixed rates and flat out, on SeaweedFS by S3.

There is no peer: Kafka keeps its log on a disk. The savings of the PUT budget are off, so that these are the figures of
a broker that has run for long, but in the last row, which is the first minute of one. One producer with its defaults.
"""
import contextlib

from clients import RECORD_BYTES, create_topic, produce
from servers import Floe, start_s3
from settings import MIB

PARTITIONS = 16
BATCH_BYTES = 16_384
NO_SAVINGS = ("flush.puts_saved_s=0",)
# what the row is called, MiB a second or None for as fast as the client can, settings
CASES = [
    ("1 MiB/s", 1, NO_SAVINGS), ("32 MiB/s asked for", 32, NO_SAVINGS), ("flat out", None, NO_SAVINGS),
    ("flat out, budget saved up", None, ()),
]
FULL_ROUNDS = 2
PUTS = 'floe_store_requests_total{kind="put",outcome="%s"}'
PUT_BYTES = 'floe_store_bytes_total{kind="put"}'


def run(settings, folder):
    with contextlib.ExitStack() as cleanup:
        environment = start_s3(folder / "s3", cleanup)
        rows = []
        for number, (title, rate, chosen) in enumerate(CASES):
            rounds = []
            for turn in range(1 if settings.fast else FULL_ROUNDS):
                floe = Floe(folder / f"floe-{number}-{turn}", environment(f"case{number}-{turn}"), chosen)
                with contextlib.ExitStack() as broker:
                    broker.callback(floe.stop)
                    floe.start()
                    rounds.append(measure(settings, floe, rate))
            print(f"  {title}: {rounds}", flush=True)
            rows.append({"name": title, "rounds": [{"floe": figures} for figures in rounds]})
        return rows


def measure(settings, floe, rate):
    """Produces at a rate for the settings' time, or half of a run's bytes flat out; returns what it took."""
    topic = create_topic(floe, PARTITIONS)
    byte_count = rate * MIB * settings.request_seconds if rate else settings.throughput_bytes // 2
    per_second = rate * MIB // RECORD_BYTES if rate else -1
    before, cpu = floe.counters(), floe.cpu_seconds()
    seconds = produce(floe, topic, byte_count // RECORD_BYTES, BATCH_BYTES, per_second)
    cpu, after = floe.cpu_seconds() - cpu, floe.counters()
    outcomes = {outcome: after[PUTS % outcome] - before[PUTS % outcome] for outcome in ("ok", "failed", "unknown")}
    puts, gib = sum(outcomes.values()), byte_count / (1024 * MIB)
    return {
        "mb_per_s": byte_count / seconds / 1e6,
        "puts_per_s": puts / seconds,
        "puts_per_gib": puts / gib,
        "kib_per_put": (after[PUT_BYTES] - before[PUT_BYTES]) / 1024 / puts,
        "puts_not_ok": puts - outcomes["ok"],
        "cpu_s_per_gib": cpu / gib,
    }
