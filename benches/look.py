"""How long a table load takes that has to commit what arrived since: on a directory, and on an S3 store of 20 ms PUTs.

The records arrive over at least a second; the load begins with the last acknowledgement, and must show all of them. Its
bound is the design's: two PUTs and two commits as the probes measure them, and 300 ms.
"""
import contextlib
import time

import probes
from clients import CLIENT_SECONDS, RECORD_BYTES, create_topic, percentiles
from confluent_kafka import Producer
from remote import slow_endpoint
from servers import Floe, start_s3
from settings import MIB

SIZES_MIB = (1, 16, 64)
PARTITIONS = 16
DELAY_MS = 20
ARRIVAL_SECONDS = 1.5
ARRIVALS = 30
# A load that follows a commit within a second waits for the rest of it: at most one commit a second and table.
PAUSE_SECONDS = 2
PROBES = 50


def run(settings, folder):
    with contextlib.ExitStack() as cleanup:
        environment = start_s3(folder / "s3", cleanup)
        slow = slow_endpoint(environment("")["FLOE_STORE_ENDPOINT"], DELAY_MS, folder, cleanup)
        remote = environment("look") | {"FLOE_STORE_ENDPOINT": slow}
        stores = [("a directory", {}, None), (f"S3, PUTs of {DELAY_MS} ms more", remote, slow)]
        rows = []
        for number, (title, store, endpoint) in enumerate(stores):
            floe = Floe(folder / f"floe-{number}", store)
            cleanup.callback(floe.stop)
            floe.start()
            for size in SIZES_MIB[:1] if settings.fast else SIZES_MIB:
                topic = create_topic(floe, PARTITIONS, tables=True)
                # The first records make the table.
                arrive(floe, topic, MIB)
                floe.look(topic)
                time.sleep(PAUSE_SECONDS)
                rounds = [measure(floe, topic, size, endpoint, folder) for _ in range(settings.rounds)]
                name = f"{size} MiB, {title}"
                print(f"  {name}: {rounds}", flush=True)
                rows.append({"name": name, "rounds": rounds})
        return rows


def measure(floe, topic, size_mib, endpoint, folder):
    arrive(floe, topic, size_mib * MIB)
    began = time.perf_counter()
    loads = floe.look(topic)
    took = (time.perf_counter() - began) * 1000
    commit = probes.commit_seconds(folder / "probe.db", PROBES)
    put = probes.put_seconds(endpoint, PROBES) if endpoint else probes.directory_put_seconds(folder, PROBES)
    bound = 2 * (percentiles(put)["p50_ms"] + percentiles(commit)["p50_ms"]) + 300
    time.sleep(PAUSE_SECONDS)
    return {"floe": {"look_ms": took, "loads": loads}, "bound": {"look_ms": bound}}


def arrive(floe, topic, byte_count):
    """Sends random bytes, evenly over the time of their arrival, until all are acknowledged."""
    client = Producer({
        "bootstrap.servers": floe.address, "acks": "all", "linger.ms": 5, "batch.size": 131_072, "log_level": 0,
        "queue.buffering.max.messages": 200_000,
    })
    with open("/dev/urandom", "rb") as random:
        value = random.read(RECORD_BYTES + 256)
    records = byte_count // RECORD_BYTES
    began = time.monotonic()
    for number in range(records):
        at = number % 256
        client.produce(topic, value[at:at + RECORD_BYTES])
        if number % max(1, records // ARRIVALS) == 0:
            client.poll(0)
            due = began + ARRIVAL_SECONDS * number / records
            time.sleep(max(0.0, due - time.monotonic()))
    if client.flush(CLIENT_SECONDS):
        raise RuntimeError("not every record was acknowledged in time")
