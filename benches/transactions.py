"""Transactions of 100 records over 10 partitions, one after the other, by one producer and by ten side by side: Floe
beside Kafka that syncs each batch, in its topics as in its own, because Floe's are on the disk when it answers.

Kafka's own producer speaks the protocol of KIP-890, librdkafka the one before. The time from EndTxn to its answer stands
beside a commit to SQLite by a probe in the same minute. It is the client's, so its threads are in it too.
"""
import contextlib
import subprocess
import threading
import time

import probes
from clients import CLIENT_SECONDS, RECORD_BYTES, create_topic, percentiles
from confluent_kafka import Producer
from servers import ROOT, TOOL_HEAP, TOOL_SECONDS, Floe, Kafka, java

PARTITIONS = 10
RECORDS = 100
PRODUCERS = (1, 10)
FSYNC = {"log.flush.interval.messages": "1"}
SECONDS, FAST_SECONDS = 3, 1
# Of Kafka's producer, whose code is compiled meanwhile.
WARM_UP_SECONDS, FAST_WARM_UP_SECONDS = 2, 1
PROBES, FAST_PROBES = 200, 20
SOURCE = ROOT / "benches/kafka/Transactions.java"
PUTS = 'floe_store_requests_total{kind="put",outcome="ok"}'
CHANGES = 'floe_metadata_changes_total{kind="%s"}'
CHANGE_KINDS = ("segments", "transactions", "facts", "upkeep")


def run(settings, folder):
    with contextlib.ExitStack() as cleanup:
        brokers = [Floe(folder / "floe"), Kafka(folder / "kafka", FSYNC)]
        for broker in brokers:
            cleanup.callback(broker.stop)
            broker.start()
        # Kafka's code is compiled while it runs: what comes first would be measured cold.
        measure(settings, folder, brokers[1], "Java", max(PRODUCERS))
        return [row(settings, folder, brokers, client, producers)
                for client in ("Java", "librdkafka") for producers in PRODUCERS]


def row(settings, folder, brokers, client, producers):
    rounds = []
    for turn in range(settings.rounds):
        pair = {}
        for broker in brokers if turn % 2 == 0 else brokers[::-1]:
            pair |= measure(settings, folder, broker, client, producers)
        print(f"  {client}, {producers}: {pair}", flush=True)
        rounds.append(pair)
    return {"name": f"{producers} producer{'s' if producers > 1 else ''}, {client}", "rounds": rounds}


def measure(settings, folder, broker, client, producers):
    """Figures by peer: of the broker, and of the probe where the broker is Floe."""
    topic = create_topic(broker, PARTITIONS)
    work = {"Java": by_java, "librdkafka": by_librdkafka}[client]
    warm_up = FAST_WARM_UP_SECONDS if settings.fast or client != "Java" else WARM_UP_SECONDS
    seconds = FAST_SECONDS if settings.fast else SECONDS
    if broker.name == "kafka":
        return {"kafka_fsync": figures(work(broker, topic, producers, warm_up, seconds), seconds)}
    probed = probe(settings, folder)
    before = broker.counters()
    times = work(broker, topic, producers, warm_up, seconds)
    after = broker.counters()
    then = probe(settings, folder)
    return {
        "floe": figures(times, seconds) | requests(before, after),
        "commit": {key: (probed[key] + then[key]) / 2 for key in probed},
    }


def figures(times, seconds):
    """Of (seconds until the records were acknowledged, seconds until they were committed)."""
    if not times:
        raise RuntimeError("no transaction was committed in time")
    committed = percentiles(sorted(committed for _, committed in times))
    ended = percentiles(sorted(committed - written for written, committed in times))
    return {
        "transactions_per_s": len(times) / seconds,
        "committed_p50_ms": committed["p50_ms"], "committed_p99_ms": committed["p99_ms"],
        "end_p50_ms": ended["p50_ms"], "end_p99_ms": ended["p99_ms"],
    }


def requests(before, after):
    """What each transaction asked of the stores, those of the warm-up counted too."""
    rose = {name: after[name] - before[name] for name in (PUTS, *(CHANGES % kind for kind in CHANGE_KINDS))}
    transactions = rose[CHANGES % "transactions"]
    each = {f"{kind}_each": rose[CHANGES % kind] / transactions for kind in CHANGE_KINDS}
    return each | {"puts_each": rose[PUTS] / transactions, "changes_each": sum(each.values())}


def probe(settings, folder):
    seconds = probes.commit_seconds(folder / "probe.db", FAST_PROBES if settings.fast else PROBES)
    return {f"end_{key}": value for key, value in percentiles(seconds).items() if key != "p999_ms"}


def by_java(broker, topic, producers, warm_up, seconds):
    sizes = (PARTITIONS, producers, RECORDS, RECORD_BYTES, warm_up, seconds)
    command = java(TOOL_HEAP, SOURCE, broker.address, topic, *sizes)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{SOURCE.name} exited with {done.returncode}: {done.stderr[-2000:]}")
    return [tuple(int(nanos) / 1e9 for nanos in line.split()) for line in done.stdout.splitlines()]


def by_librdkafka(broker, topic, producers, warm_up, seconds):
    """As Transactions.java, on a thread each: what takes time leaves Python to the others."""
    start = threading.Barrier(producers)
    times, failures = [], []

    def produce(number):
        try:
            client = transactional(broker, f"{topic}-{number}")
            start.wait(CLIENT_SECONDS)
            times.extend(transact(client, topic, warm_up, seconds))
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return times


def transact(client, topic, warm_up, seconds):
    warm = time.perf_counter() + warm_up
    end = warm + seconds
    value, times = b"x" * RECORD_BYTES, []
    while (began := time.perf_counter()) < end:
        client.begin_transaction()
        for number in range(RECORDS):
            client.produce(topic, value, partition=number % PARTITIONS)
        client.flush(CLIENT_SECONDS)
        written = time.perf_counter()
        client.commit_transaction(CLIENT_SECONDS)
        if began >= warm:
            times.append((written - began, time.perf_counter() - began))
    return times


def transactional(broker, name):
    """A producer of librdkafka that has its id and epoch."""
    client = Producer({
        "bootstrap.servers": broker.address, "transactional.id": name, "log_level": 0,
        "queue.buffering.max.messages": 200_000,
    })
    client.init_transactions(CLIENT_SECONDS)
    return client
