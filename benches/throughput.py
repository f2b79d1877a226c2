"""Produce and consume by Kafka's own performance tools: Floe beside Kafka, a new topic for each run.

A round measures both brokers one after the other, in turns first; the disk is told to write everything out before each.
"""
import contextlib
import os

from clients import RECORD_BYTES, consume, create_topic, delete_topic, measured, produce
from servers import Floe, Kafka, start_s3

# partitions, bytes of a producer's batch, whether Floe keeps a table
CASES = [(1, 16_384, False), (1, 131_072, False), (16, 16_384, False), (16, 131_072, False), (16, 131_072, True)]


def run(settings, folder):
    with contextlib.ExitStack() as cleanup:
        kafka = Kafka(folder / "kafka")
        cleanup.callback(kafka.stop)
        kafka.start()
        # Its code is compiled while it runs: what comes first would be measured cold.
        for case in (CASES[0], CASES[3]):
            measure(kafka, settings.throughput_bytes, case)
        rows = list(rows_of(settings, folder, kafka, "", lambda number: {}))
        if settings.s3:
            environment = start_s3(folder / "s3", cleanup)
            rows += rows_of(settings, folder, kafka, ", Floe on S3", lambda number: environment(f"case{number}"))
        return rows


def rows_of(settings, folder, kafka, suffix, store):
    """Measures every case on a fresh Floe. Its folder stays until the end: ext4 hands out no inode that was freed within
    five minutes, and looking past thousands of them would be measured as Floe's work."""
    for number, case in enumerate(CASES):
        with contextlib.ExitStack() as cleanup:
            floe = Floe(folder / f"floe{suffix and '-s3'}-{number}", store(number))
            cleanup.callback(floe.stop)
            floe.start()
            rounds = []
            for turn in range(settings.rounds):
                order = [floe, kafka] if turn % 2 == 0 else [kafka, floe]
                pair = {broker.name: measure(broker, settings.throughput_bytes, case) for broker in order}
                print(f"  {name(case)}{suffix}: {pair}", flush=True)
                rounds.append(pair)
        yield {"name": name(case) + suffix, "rounds": rounds}


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
        if tables and broker.name == "floe":
            # The table's work may come later than the records; it belongs to what they cost.
            broker.look(topic)
        return seconds

    produced = measured(broker, byte_count, write)
    consumed = measured(broker, byte_count, lambda: consume(broker, topic, records))
    delete_topic(broker, topic)
    return {f"produce_{key}": value for key, value in produced.items()} | {
        f"consume_{key}": value for key, value in consumed.items()}
