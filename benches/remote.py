"""Time from sending a record to its acknowledgement on an S3 store that takes 20 or 100 ms, beside one PUT and one commit.

Nothing durable there can cost less than the two. With the PUT budget lifted, the cut and the commit are what is
measured. As shipped, requests are saved up while there are few (then it is as if the budget were lifted) and rationed when
the savings are used up, which costs at most the interval of a rationed PUT.
"""
import contextlib
import signal
import socket
import sys

import probes
from clients import create_topic, percentiles, record_latencies
from latency import PROBE_FACTOR
from servers import ROOT, TEST_SERVERS, Floe, start_s3

DELAYS_MS = (20, 100)
OUTSTANDING = (1, 5)
# Settings of a broker, what they mean, and records of a round: fewer where PUTs are rationed.
LIFTED = ("flush.puts_per_second=1000",), "budget lifted", 250
RATIONED = ("flush.puts_saved_s=0",), "savings used up", 80
# PUTs and commits of a probe.
PROBES = 100


def run(settings, folder):
    with contextlib.ExitStack() as cleanup:
        environment = start_s3(folder / "s3", cleanup)
        endpoint = environment("")["FLOE_STORE_ENDPOINT"]
        rows = []
        for delay in DELAYS_MS:
            slow = slow_endpoint(endpoint, delay, folder, cleanup)
            for chosen, budget, records in (LIFTED, RATIONED):
                name = f"{delay}-{budget.replace(' ', '-')}"
                store = environment(name) | {"FLOE_STORE_ENDPOINT": slow}
                floe = Floe(folder / name, store, chosen)
                with contextlib.ExitStack() as broker:
                    broker.callback(floe.stop)
                    floe.start()
                    for outstanding in OUTSTANDING:
                        title = f"PUTs of {delay} ms more, {outstanding} outstanding, {budget}"
                        rounds = measure(settings, folder, floe, slow, outstanding, records)
                        print(f"  {title}: {rounds}", flush=True)
                        rows.append({"name": title, "rounds": rounds})
        return rows


def slow_endpoint(endpoint, delay_ms, folder, cleanup):
    """Starts a proxy that delays requests; returns its address."""
    port, = TEST_SERVERS.free_ports(1)
    upstream = endpoint.rpartition(":")[2]
    command = [sys.executable, ROOT / "benches/slow_store.py", port, upstream, delay_ms]
    server = TEST_SERVERS.Server("slow store", command, folder / f"slow-{delay_ms}.log", signal.SIGTERM)
    cleanup.callback(server.stop)
    server.wait_until(lambda: listens(port))
    return f"http://127.0.0.1:{port}"


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def measure(settings, folder, floe, endpoint, outstanding, records):
    topic = create_topic(floe, 1)
    records = settings.latency_records // 10 if settings.fast else records
    rounds = []
    for _ in range(1 if settings.fast else settings.rounds):
        before = probe(settings, folder, endpoint)
        figures = percentiles(record_latencies(floe, topic, records, outstanding))
        after = probe(settings, folder, endpoint)
        p99 = sorted((before["p99_ms"], after["p99_ms"]))
        middle = {key: (before[key] + after[key]) / 2 for key in before}
        rounds.append({"floe": figures, "put_and_commit": middle, "counts": p99[1] < PROBE_FACTOR * p99[0]})
    return rounds


def probe(settings, folder, endpoint):
    """Percentiles of a PUT and of a commit, added up."""
    count = 20 if settings.fast else PROBES
    put = percentiles(probes.put_seconds(endpoint, count))
    commit = percentiles(probes.commit_seconds(folder / "probe.db", count))
    return {key: put[key] + commit[key] for key in put}
