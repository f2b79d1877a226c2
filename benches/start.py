"""Start, restart after `kill -9`, and what an idle broker costs: Floe beside Kafka.

A broker has started when it answers a client's first request; it serves when a record is acknowledged.
"""
import shutil
import time

from clients import CLIENT_SECONDS, RECORD_BYTES, create_topic, produce, record_latencies
from servers import Floe, Kafka
from settings import MIB

BATCH_BYTES = 131_072
SETTLE_SECONDS = 2


def run(settings, folder):
    rounds = []
    for turn in range(settings.rounds):
        kinds = [Floe, Kafka] if turn % 2 == 0 else [Kafka, Floe]
        pair = {}
        for kind in kinds:
            data = folder / kind.__name__
            broker = kind(data)
            try:
                pair[broker.name] = measure(settings, broker)
            finally:
                broker.stop()
                shutil.rmtree(data)
        print(f"  {pair}", flush=True)
        rounds.append(pair)
    return [{"name": "one broker", "rounds": rounds}]


def measure(settings, broker):
    figures = {"start_s": broker.start()}
    topic = create_topic(broker, 1)
    time.sleep(SETTLE_SECONDS)
    before = broker.cpu_seconds()
    time.sleep(settings.idle_seconds)
    figures["idle_cpu_percent"] = (broker.cpu_seconds() - before) / settings.idle_seconds * 100
    figures["idle_mib"] = broker.resident_bytes() / MIB
    produce(broker, topic, settings.throughput_bytes // 4 // RECORD_BYTES, BATCH_BYTES)
    broker.kill9()
    began = time.monotonic()
    figures["restart_s"] = broker.start()
    record_latencies(broker, topic, 1, 1)
    figures["restart_to_ack_s"] = time.monotonic() - began
    if figures["restart_to_ack_s"] > CLIENT_SECONDS:
        raise RuntimeError(f"{broker.name} took {figures['restart_to_ack_s']:.0f} s after kill -9")
    return figures
