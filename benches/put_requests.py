"""What Floe asks of an object store: PUTs and their sizes at fixed rates and flat out, on SeaweedFS by S3.

There is no peer: Kafka keeps its log on a disk. The savings of the PUT budget are off, so that these are the figures of
a broker that has run for long, but in the last row, which is the first minute of one. One producer: with its defaults it
has 5 requests of 16 batches of 16 KiB under way at most, which the interval of a rationed PUT limits to about 5 MiB/s; a
tuned one has larger batches and requests.
"""
import contextlib

from clients import RECORD_BYTES, create_topic, produce
from servers import Floe, start_s3
from settings import MIB

PARTITIONS = 16
BATCH_BYTES = 16_384
TUNED_BATCH_BYTES = 524_288
TUNED = ("max.request.size=8388608", "buffer.memory=134217728", "linger.ms=100")
NO_SAVINGS = ("flush.puts_saved_s=0",)
# what the row is called, MiB a second or None for as fast as the client can, whether it is tuned, Floe's settings
CASES = [
    ("1 MiB/s", 1, False, NO_SAVINGS), ("32 MiB/s, tuned producer", 32, True, NO_SAVINGS),
    ("flat out, tuned producer", None, True, NO_SAVINGS), ("flat out", None, False, NO_SAVINGS),
    ("flat out, budget saved up", None, False, ()),
]
FULL_ROUNDS = 2
PUTS = 'floe_store_requests_total{kind="put",outcome="%s"}'
PUT_BYTES = 'floe_store_bytes_total{kind="put"}'
SEGMENTS = "floe_log_segment_bytes_count"


def run(settings, folder):
    with contextlib.ExitStack() as cleanup:
        environment = start_s3(folder / "s3", cleanup)
        rows = []
        for number, (title, rate, is_tuned, chosen) in enumerate(CASES):
            rounds = []
            for turn in range(1 if settings.fast else FULL_ROUNDS):
                floe = Floe(folder / f"floe-{number}-{turn}", environment(f"case{number}-{turn}"), chosen)
                with contextlib.ExitStack() as broker:
                    broker.callback(floe.stop)
                    floe.start()
                    rounds.append(measure(settings, floe, rate, is_tuned))
            print(f"  {title}: {rounds}", flush=True)
            rows.append({"name": title, "rounds": [{"floe": figures} for figures in rounds]})
        return rows


def measure(settings, floe, rate, is_tuned):
    """Produces at a rate for the settings' time, or half of a run's bytes flat out; returns what it took."""
    topic = create_topic(floe, PARTITIONS)
    byte_count = rate * MIB * settings.request_seconds if rate else settings.throughput_bytes // 2
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
