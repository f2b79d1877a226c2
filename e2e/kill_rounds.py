"""kill -9 under load, again and again, and afterwards: is all that was acknowledged there, in the log and in the table?

Producers are processes of their own (kill_load.py), idempotent and not; two of them share a partition. Somebody keeps looking at
the table, so that kills also hit its commits. Nothing is judged by time: the check reads everything when the load has ended.
"""
import collections
import contextlib
import http.client
import json
import pathlib
import random
import subprocess
import sys
import threading
import time

from kit import Floe, create_topic, duckdb_on, read_all

LOAD = pathlib.Path(__file__).with_name("kill_load.py")
# name, kind and partition of each producer.
PRODUCERS = [("a", "once", 0), ("b", "plain", 1), ("c", "once", 2), ("d", "plain", 2)]
PARTITIONS = 3
UP_SECONDS_MIN, UP_SECONDS_MAX = 0.05, 2.5
DOWN_SECONDS_MAX = 0.3
LOOK_PAUSE_SECONDS = 0.1
END_SECONDS = 150


class Load:
    """The producers of one topic."""

    def __init__(self, floe, topic, folder):
        self.notes = {name: folder / f"{name}.acknowledged" for name, _, _ in PRODUCERS}
        self.processes = [
            subprocess.Popen([sys.executable, LOAD, floe.kafka, topic, str(partition), name, kind, self.notes[name]],
                             stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for name, kind, partition in PRODUCERS
        ]

    def wait_until_all_have_begun(self):
        deadline = time.monotonic() + END_SECONDS
        while not all(path.exists() and path.stat().st_size for path in self.notes.values()):
            assert time.monotonic() < deadline, "not every producer has an acknowledgement"
            time.sleep(0.05)

    def finish(self):
        """Ends the load; returns what was acknowledged: {producer: [(number, offset), ...]}."""
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            status = process.wait(END_SECONDS)
            assert status == 0, process.stderr.read()
        return {name: [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
                for name, path in self.notes.items()}

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def somebody_looks(floe, topic):
    """Loads the table over and over, which commits it. While the broker is away a look fails, as it may."""
    ending = threading.Event()
    _, config = floe.get("/iceberg/v1/config")
    path = f"/iceberg/v1/{json.loads(config)['overrides']['prefix']}/namespaces/kafka/tables/{topic}"

    def look():
        while not ending.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                floe.get(path)
            ending.wait(LOOK_PAUSE_SECONDS)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
    # A look that is killed again and again need not have come to its end; now that nobody kills, one must.
    deadline = time.monotonic() + END_SECONDS
    while floe.get(path)[0] != 200:
        assert time.monotonic() < deadline, f"the table cannot be loaded: {floe.get(path)}"


def kill_again_and_again(floe, load, rounds, chance):
    """Kills and restarts a broker at random moments; returns the seconds from each new start until it was ready."""
    starts = []
    load.wait_until_all_have_begun()
    for _ in range(rounds):
        time.sleep(chance.uniform(UP_SECONDS_MIN, UP_SECONDS_MAX))
        floe.kill9()
        time.sleep(chance.uniform(0, DOWN_SECONDS_MAX))
        began = time.monotonic()
        floe.start()
        starts.append(time.monotonic() - began)
    return starts


def check_log(records, acknowledged):
    """What a reader got, against what producers were told. records: {partition: [record, ...]}."""
    for name, kind, partition in PRODUCERS:
        log = [(record.value().decode().partition(":"), record.offset()) for record in records[partition]]
        mine = [(int(number), offset) for (who, _, number), offset in log if who == name]
        told = acknowledged[name]
        assert told, f"producer {name} was never acknowledged"
        assert [number for number, _ in told] == list(range(len(told))), f"{name}: acknowledged out of order"
        missing = set(told) - set(mine)
        assert not missing, f"{name}: acknowledged and not there, as (number, offset): {sorted(missing)[:5]}"
        numbers = [number for number, _ in mine]
        firsts = list(dict.fromkeys(numbers))
        assert firsts == list(range(len(told))), f"{name}: not in order, or more than was sent"
        if kind == "once":
            twice = [number for number, count in collections.Counter(numbers).items() if count > 1]
            assert not twice, f"{name}: more than once: {twice[:5]}"
    for partition, found in records.items():
        assert [record.offset() for record in found] == list(range(len(found))), f"partition {partition} has gaps"


def check_table(floe, topic, records, secret_for=None):
    """The table has a row for each offset of the log, once, with the same value."""
    with duckdb_on(floe) as lake:
        if secret_for:
            secret_for(lake)
        rows = lake.sql(f"""SELECT _kafka_partition, _kafka_offset, _kafka_value FROM lake.kafka.{topic}
            ORDER BY _kafka_partition, _kafka_offset""").fetchall()
    log = [(partition, record.offset(), record.value())
           for partition, found in sorted(records.items()) for record in found]
    assert len(rows) == len(log), f"the table has {len(rows)} rows, the log {len(log)} records"
    different = [pair for pair in zip(rows, log, strict=True) if pair[0] != pair[1]]
    assert not different, f"{len(different)} rows differ; the first, with its record: {different[0]}"


def run(folder, topic, rounds, seed, store=None):
    """All of it on a broker of its own; store: an S3 of kit, else a directory. Returns (records, seconds of the restarts)."""
    floe = Floe(folder, store.settings if store else {}, store.environment if store else {})
    floe.start()
    try:
        create_topic(floe, topic, PARTITIONS)
        load = Load(floe, topic, folder)
        try:
            with somebody_looks(floe, topic):
                starts = kill_again_and_again(floe, load, rounds, random.Random(seed))
                acknowledged = load.finish()
        finally:
            load.kill()
        records = read_all(floe, topic)
        check_log(records, acknowledged)
        check_table(floe, topic, records, store.secret_for if store else None)
    except BaseException:
        sys.stderr.write(f"kill -9: seed {seed}\n{floe.log_tail()}")
        if floe.process is not None:
            floe.kill9()
        raise
    floe.stop()
    return sum(map(len, records.values())), starts
