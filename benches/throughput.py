"""Produce and consume by Kafka's own performance tools: Floe beside Kafka, a new topic for each run.

A round measures both brokers one after the other, in turns first; the disk is told to write everything out before each.
Where Floe keeps a table, a round measures Floe without it too: what is between them is the table's share.
"""
import contextlib
import os

from clients import RECORD_BYTES, consume, create_topic, delete_topic, measured, produce
from servers import Floe, Kafka, start_s3

# partitions, bytes of a producer's batch, whether Floe keeps a table
CASES = [(1, 16_384, False), (1, 131_072, False), (16, 16_384, False), (16, 131_072, False), (16, 131_072, True)]
# Beyond these the interval of a rationed PUT is what limits this producer on a remote store; `requests` shows that.
S3_CASES = CASES[3:]


def run(settings, folder):
    with contextlib.ExitStack() as cleanup:
        kafka = warm_kafka(settings, folder, cleanup)
        return list(rows_of(settings, folder, kafka, CASES, lambda number: {}))


def run_s3(settings, folder):
    with contextlib.ExitStack() as cleanup:
        kafka = warm_kafka(settings, folder, cleanup)
        environment = start_s3(folder / "s3", cleanup)
        return list(rows_of(settings, folder, kafka, S3_CASES, lambda number: environment(f"case{number}")))


def warm_kafka(settings, folder, cleanup):
    kafka = Kafka(folder / "kafka")
    cleanup.callback(kafka.stop)
    kafka.start()
    # Its code is compiled while it runs: what comes first would be measured cold.
    for case in (CASES[0], CASES[3]):
        measure(kafka, settings.throughput_bytes, case)
    return kafka


def rows_of(settings, folder, kafka, cases, store):
    """Measures every case on a fresh Floe. Its folder stays until the end: ext4 hands out no inode that was freed within
    five minutes, and looking past thousands of them would be measured as Floe's work."""
    for number, case in enumerate(cases):
        partitions, batch_bytes, has_table = case
        with contextlib.ExitStack() as cleanup:
            floe = Floe(folder / f"floe-{number}", store(number))
            cleanup.callback(floe.stop)
            floe.start()
            rounds = []
            for turn in range(settings.rounds):
                runs = [("floe", floe, case), ("kafka", kafka, case)]
                if has_table:
                    runs.append(("no_table", floe, (partitions, batch_bytes, False)))
                ordered = runs if turn % 2 == 0 else runs[::-1]
                pair = {side: measure(broker, settings.throughput_bytes, what) for side, broker, what in ordered}
                print(f"  {name(case)}: {pair}", flush=True)
                rounds.append(pair)
        yield {"name": name(case), "rounds": rounds}


def name(case):
    partitions, batch_bytes, tables = case
    table = ", with its table" if tables else ""
    return f"{partitions} partition{'s' if partitions > 1 else ''}, batches of {batch_bytes // 1024} KiB{table}"


def measure(broker, byte_count, case):
    """Produces byte_count bytes to a new topic and consumes them."""
    partitions, batch_bytes, tables = case
    topic = create_topic(broker, partitions, tables)
    records = byte_count // RECORD_BYTES
    os.sync()

    def write():
        seconds = produce(broker, topic, records, batch_bytes)
        # What a table and merges do with the records may come later; it belongs to what they cost.
        if tables and broker.name == "floe":
            broker.look(topic)
        broker.settle()
        return seconds

    produced = measured(broker, byte_count, write)
    consumed = measured(broker, byte_count, lambda: consume(broker, topic, records))
    delete_topic(broker, topic)
    return {f"produce_{key}": value for key, value in produced.items()} | {
        f"consume_{key}": value for key, value in consumed.items()}
