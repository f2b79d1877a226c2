"""kill -9 under load, again and again, and afterwards: is all that was acknowledged there, in the log and in the table?

Producers are processes of their own (kill_load.py), idempotent and not; two of them share a partition. Somebody keeps looking at
the table, and two of three kills are aimed at the commit that a look makes; data files that no snapshot names tell how often one was
hit. Nothing is judged by time: the check reads everything when the load has ended.
"""
import collections
import dataclasses
import http.client
import json
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

import pyarrow.fs
from pyiceberg.catalog import load_catalog

from kit import Floe, create_topic, duckdb_on, read_all

LOAD = pathlib.Path(__file__).with_name("kill_load.py")
# name, kind and partition of each producer.
PRODUCERS = [("a", "once", 0), ("b", "plain", 1), ("c", "once", 2), ("d", "plain", 2)]
PARTITIONS = 3
UP_SECONDS_MIN, UP_SECONDS_MAX = 0.05, 2.5
DOWN_SECONDS_MAX = 0.3
LOOK_PAUSE_SECONDS = 0.1
# A table is committed once a second at most: a look that comes later than this after the last commits at once.
COMMIT_PAUSE_SECONDS = 1.1
COMMIT_SECONDS_MAX = 1.0
END_SECONDS = 150


class Load:
    """The producers of one topic."""

    def __init__(self, floe, topic, folder, producers=PRODUCERS):
        self.notes = {name: folder / f"{name}.acknowledged" for name, _, _ in producers}
        self.processes = [
            subprocess.Popen([sys.executable, LOAD, floe.kafka, topic, str(partition), name, kind, self.notes[name]],
                             stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for name, kind, partition in producers
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


def path_of(url):
    """What a pyarrow file system calls a file that has a URL in a table."""
    return url.partition("://")[2]


class Looks:
    """Somebody who loads the table over and over, which commits it.

    A look that its broker does not survive gets no answer. A broker that answers has both its stores, so every answer must be
    the table, or, at first, that there is none yet.
    """

    def __init__(self, floe, topic, objects):
        self.floe, self.objects, self.folder = floe, objects, None
        _, config = floe.get("/iceberg/v1/config")
        self.path = f"/iceberg/v1/{json.loads(config)['overrides']['prefix']}/namespaces/kafka/tables/{topic}"
        self.answers, self.refusals = 0, []
        self.is_up, self.is_over = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.look_on, daemon=True)

    def __enter__(self):
        self.is_up.set()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_up.set()
        self.is_over.set()
        self.thread.join()

    def look_on(self):
        while not self.is_over.is_set():
            self.is_up.wait()
            self.look()
            self.is_over.wait(LOOK_PAUSE_SECONDS)

    def look(self):
        try:
            status, text = self.floe.get(self.path)
        except (OSError, http.client.HTTPException):
            return
        self.answers += 1
        if status == 200:
            self.folder = path_of(json.loads(text)["metadata"]["location"]) + "/data"
        # Before its first commit there is no table.
        if status != 200 and (status != 404 or self.folder is not None):
            self.refusals.append(f"{status} {text}")

    def files(self):
        """The table's data files, those of an attempt to commit too; none before there is a table."""
        if self.folder is None:
            return set()
        return {info.path for info in self.objects.get_file_info(pyarrow.fs.FileSelector(self.folder, allow_not_found=True))}

    def check(self):
        assert self.answers, "no look was answered"
        assert not self.refusals, f"{len(self.refusals)} of {self.answers} looks were refused; the first: {self.refusals[0]}"


def wait_for_a_commit(looks):
    """Returns while a look commits, as soon as a file of that is seen; or after a while, where none is to be seen."""
    known, deadline = looks.files(), time.monotonic() + COMMIT_SECONDS_MAX
    looks.is_up.set()
    while looks.files() <= known and time.monotonic() < deadline:
        pass


def kill_again_and_again(floe, looks, rounds, chance):
    """Kills and restarts a broker under load; returns the seconds from each new start until it was ready.

    The first of three kills comes at a random moment. The others are aimed: nobody looks until the load flows again, and they
    come while the first look commits.
    """
    starts = []
    with looks:
        for number in range(rounds):
            is_aimed = number % 3 != 0
            if is_aimed:
                time.sleep(COMMIT_PAUSE_SECONDS)
                wait_for_a_commit(looks)
            else:
                looks.is_up.set()
                time.sleep(chance.uniform(UP_SECONDS_MIN, UP_SECONDS_MAX))
            looks.is_up.clear()
            floe.kill9()
            time.sleep(chance.uniform(0, DOWN_SECONDS_MAX))
            began = time.monotonic()
            floe.start()
            starts.append(time.monotonic() - began)
        looks.is_up.set()
    return starts


def check_log(records, acknowledged, producers=PRODUCERS):
    """What a reader got, against what producers were told. records: {partition: [record, ...]}."""
    for name, kind, partition in producers:
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


def check_table(lake, topic, records):
    """The table has a row for each offset of the log, once, with the same value."""
    rows = lake.sql(f"""SELECT _kafka_partition, _kafka_offset, _kafka_value FROM lake.kafka.{topic}
        ORDER BY _kafka_partition, _kafka_offset""").fetchall()
    log = [(partition, record.offset(), record.value())
           for partition, found in sorted(records.items()) for record in found]
    assert len(rows) == len(log), f"the table has {len(rows)} rows, the log {len(log)} records"
    different = [pair for pair in zip(rows, log, strict=True) if pair[0] != pair[1]]
    assert not different, f"{len(different)} rows differ; the first, with its record: {different[0]}"


def commits_hit(floe, store, topic, there):
    """How many of the data files that are there no snapshot names: their brokers were killed while they committed them."""
    properties = store.pyiceberg_properties() if store else {}
    lake = load_catalog("floe", type="rest", uri=f"http://{floe.http}/iceberg", **properties)
    table = lake.load_table(f"kafka.{topic}")
    # Of all snapshots: what a fold has replaced is named by those before it.
    named = {path_of(url) for url in table.inspect.all_files()["file_path"].to_pylist()}
    assert named <= there, f"snapshots name files that are not there: {sorted(named - there)[:3]}"
    return len(there - named)


@dataclasses.dataclass
class Report:
    """kills; records in the log; answered looks; commits hit; starts: seconds until each new broker was ready."""

    kills: int
    records: int
    looks: int
    hits: int
    starts: list

    def __str__(self):
        return (f"{self.kills} kills, {self.hits} of them in a table commit; {self.records} records, {self.looks} looks answered;"
                f" ready again after {statistics.median(self.starts):.2f} s (median), {max(self.starts):.2f} s (most)")


def run(folder, topic, rounds, seed, store=None):
    """All of it on a broker of its own; store: an S3 of kit, else a directory. Returns a Report."""
    floe = Floe(folder, store.settings if store else {}, store.environment if store else {})
    floe.start()
    try:
        create_topic(floe, topic, PARTITIONS)
        objects = store.file_system() if store else pyarrow.fs.LocalFileSystem()
        looks, load = Looks(floe, topic, objects), Load(floe, topic, folder)
        try:
            load.wait_until_all_have_begun()
            starts = kill_again_and_again(floe, looks, rounds, random.Random(seed))
            acknowledged = load.finish()
        finally:
            load.kill()
        looks.check()
        records = read_all(floe, topic)
        check_log(records, acknowledged)
        with duckdb_on(floe) as lake:
            if store:
                store.secret_for(lake)
            check_table(lake, topic, records)
        hits = commits_hit(floe, store, topic, looks.files())
    except BaseException:
        sys.stderr.write(f"kill -9: seed {seed}\n{floe.log_tail()}")
        if floe.process is not None:
            floe.kill9()
        raise
    floe.stop()
    return Report(rounds, sum(map(len, records.values())), looks.answers, hits, starts)
