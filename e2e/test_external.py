"""Tables in a catalog that is not Floe's, and snapshots of several tables at one cut. The catalog is SeaweedFS'; DuckDB and
PyIceberg read through it, and never ask Floe."""
import json
import os
import shutil
import subprocess
import threading
import time

import pytest
from pyiceberg.exceptions import NoSuchTableError

from kit import CLIENT_SECONDS, S3, Catalog, Floe, duckdb_on, floe_command, producer, send

KAFKA = "kafka"


class Lake:
    """A broker whose tables are in SeaweedFS' catalog."""

    def __init__(self, tmp_path, request, settings, environment):
        store = S3()
        self.catalog = Catalog(store)
        self.floe = Floe(tmp_path, self.catalog.settings | settings, store.environment | environment)
        request.node.floe = self.floe

    def __enter__(self):
        self.floe.start()
        return self

    def __exit__(self, *failure):
        if self.floe.process is not None:
            self.floe.stop()

    def send(self, topic, *values):
        send(self.floe, topic, [json.dumps(value) for value in values])

    def flush(self, *names):
        done = floe_command("tables", "--http", self.floe.http, "--json", "flush", *names)
        return done.returncode, json.loads(done.stdout or "null"), done.stderr

    def flushed(self, *names):
        status, tables, error = self.flush(*names)
        assert status == 0, (tables, error)
        return tables

    def state(self, topic):
        (table,) = [table for table in json.loads(self.floe.get("/v1/tables")[1]) if table["topic"] == topic]
        return table["state"], table["reason"]

    def values(self, topic, column="a"):
        """As PyIceberg and DuckDB read them, both the same."""
        read = self.values_now(topic, column)
        with self.catalog.duckdb() as lake:
            assert lake.sql(f"SELECT {column} FROM lake.{KAFKA}.{topic} ORDER BY 1").fetchall() == [(value,) for value in read]
        return read

    def values_now(self, topic, column="a"):
        """As PyIceberg reads them, while commits come as they like."""
        return sorted(self.catalog.pyiceberg().load_table((KAFKA, topic)).scan().to_arrow().column(column).to_pylist())


def offline(floe, *arguments):
    """A command with the settings of a broker that does not run: (status, what it printed)."""
    settings = ["--data", str(floe.data), "--kafka", floe.kafka, "--http", floe.http]
    settings += [word for name, value in floe.settings.items() for word in ("--set", f"{name}={value}")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLOE_")} | floe.environment
    done = subprocess.run(
        [os.environ["FLOE_BIN"], *arguments, *settings], capture_output=True, text=True, timeout=60, env=environment)
    return done.returncode, done.stdout + done.stderr


OAUTH2 = {"iceberg.catalog.client_id": S3.key}, {"FLOE_ICEBERG_CATALOG_CLIENT_SECRET": S3.secret}
SIGNED = {"iceberg.catalog.sigv4_service": "s3tables"}, {}


@pytest.fixture
def lake(tmp_path, request):
    with Lake(tmp_path, request, *OAUTH2) as lake:
        yield lake


@pytest.mark.parametrize("settings, environment", [OAUTH2, SIGNED], ids=["oauth2", "sigv4"])
def test_rows_are_read_through_another_catalog(tmp_path, request, topic, settings, environment):
    with Lake(tmp_path, request, settings, environment) as lake:
        lake.send(topic, {"a": 1}, {"a": 2})
        (flushed,) = lake.flushed(topic)
        assert (flushed["name"], flushed["rows"], flushed["cut"]) == (f"{KAFKA}.{topic}", 2, [2])
        assert lake.values(topic) == [1, 2]
        table = lake.catalog.pyiceberg().load_table((KAFKA, topic))
        assert table.current_snapshot().snapshot_id == flushed["snapshot_id"]
        assert table.refs()["floe"].snapshot_id == flushed["snapshot_id"]
        lake.send(topic, {"a": 3, "b": "new"})
        lake.flushed(topic)
        assert lake.values(topic) == [1, 2, 3]
        lake.floe.restart()
        lake.send(topic, {"a": 4})
        lake.flushed(f"{KAFKA}.{topic}")
        assert lake.values(topic) == [1, 2, 3, 4]
        assert lake.state(topic) == ("running", None)
        assert lake.floe.get("/iceberg/v1/config")[0] == 404, "the embedded catalog has nothing to serve"
    assert S3.secret not in lake.floe.log.read_text(errors="replace")


def test_records_come_without_being_asked_for(tmp_path, request, topic):
    settings, environment = OAUTH2
    with Lake(tmp_path, request, settings | {"iceberg.commit_interval_ms": "2000"}, environment) as lake:
        lake.send(topic, {"a": 1})
        deadline = time.monotonic() + CLIENT_SECONDS
        for count in (1, 2):
            while True:
                assert time.monotonic() < deadline, lake.state(topic)
                try:
                    if lake.values_now(topic) == list(range(1, count + 1)):
                        break
                except (NoSuchTableError, KeyError):
                    pass  # the table is made empty, and its column comes with its first rows
                time.sleep(0.2)
            lake.send(topic, {"a": count + 1})


def test_pyiceberg_changes_the_table_beside_the_topic(lake, topic):
    lake.send(topic, {"a": 1}, {"a": 2})
    lake.flushed(topic)
    table = lake.catalog.pyiceberg().load_table((KAFKA, topic))
    with table.update_schema() as update:
        update.rename_column("a", "amount")
    lake.send(topic, {"a": 4})
    lake.flushed(topic)
    assert lake.values(topic, "amount")[-1] == 4
    assert lake.state(topic) == ("running", None)


def test_a_dropped_table_is_stopped_until_somebody_has_decided(lake, topic):
    lake.send(topic, {"a": 1})
    lake.flushed(topic)
    lake.catalog.pyiceberg().drop_table((KAFKA, topic))
    lake.send(topic, {"a": 2})
    status, (table,), _ = lake.flush(topic)
    assert status != 0 and "dropped" in table["error"]
    assert lake.state(topic)[0] == "stopped" and "--rewind" in lake.state(topic)[1]
    done = floe_command("tables", "--http", lake.floe.http, "resume", topic, "--rewind")
    assert done.returncode == 0, done.stderr
    lake.flushed(topic)
    assert lake.values(topic) == [1, 2]


def test_a_table_stays_as_it_is_where_the_metadata_goes_back(lake, topic, tmp_path):
    floe, backup = lake.floe, tmp_path / "backup"
    lake.send(topic, {"a": 1}, {"a": 2})
    lake.flushed(topic)
    floe.stop()
    status, text = offline(floe, "doctor")
    assert status == 0 and "answers, and has namespace kafka" in text, text
    backup.mkdir()
    for file in floe.data.glob("metadata.sqlite*"):
        shutil.copy(file, backup)
    floe.start()
    lake.send(topic, {"a": 3})
    lake.flushed(topic)
    floe.stop()
    for file in floe.data.glob("metadata.sqlite*"):
        file.unlink()
    for file in backup.iterdir():
        shutil.copy(file, floe.data)
    status, text = offline(floe, "restore")
    assert status == 0, text
    floe.start()
    lake.send(topic, {"a": 4}, {"a": 5})
    status, (table,), _ = lake.flush(topic)
    assert status != 0 and "ahead: " in table["error"], table
    assert lake.state(topic)[0] == "stopped"
    done = floe_command("tables", "--http", floe.http, "resume", topic, "--rewind")
    assert done.returncode == 0, done.stderr
    lake.flushed(topic)
    assert lake.values(topic) == [1, 2, 3, 4, 5]


def test_a_kill_in_the_middle_of_commits_loses_and_doubles_nothing(tmp_path, request, topic):
    settings, environment = OAUTH2
    sent = 0
    with Lake(tmp_path, request, settings | {"iceberg.commit_interval_ms": "1000"}, environment) as lake:
        for pause in (0.05, 0.3, 0.7, 1.2):
            for _ in range(5):
                lake.send(topic, *({"a": sent + number} for number in range(20)))
                sent += 20
            flushing = threading.Thread(target=floe_command, args=("tables", "--http", lake.floe.http, "flush", topic))
            flushing.start()
            time.sleep(pause)
            lake.floe.kill9()
            flushing.join(CLIENT_SECONDS)
            lake.floe.start()
        lake.flushed(topic)
        assert lake.values(topic) == list(range(sent))


def test_a_flush_has_each_transaction_in_all_tables_or_in_none(floe, topic):
    """On the embedded catalog: a producer writes to two topics in transactions, and each flush is one moment of both."""
    one, two = f"{topic}_one", f"{topic}_two"
    client = producer(floe, **{"transactional.id": topic})
    client.init_transactions()
    stop = threading.Event()
    pairs = []

    def write():
        number = 0
        while not stop.is_set() or number < 5:
            client.begin_transaction()
            for name in (one, two):
                client.produce(name, value=json.dumps({"a": number}))
            client.commit_transaction()
            number += 1
            pairs.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        deadline = time.monotonic() + CLIENT_SECONDS
        while len(pairs) < 5:
            assert time.monotonic() < deadline and writer.is_alive()
            time.sleep(0.05)
        for _ in range(5):
            acknowledged = len(pairs)
            done = floe_command("tables", "--http", floe.http, "--json", "flush", one, f"{KAFKA}.{two}")
            assert done.returncode == 0, done.stderr
            first, second = json.loads(done.stdout)
            assert first["rows"] == second["rows"] >= acknowledged, (first, second)
    finally:
        stop.set()
        writer.join(CLIENT_SECONDS)
    with duckdb_on(floe) as session:
        counts = [session.sql(f"SELECT count(*) FROM lake.{KAFKA}.{name}").fetchone()[0] for name in (one, two)]
    assert counts == [len(pairs), len(pairs)]


def test_a_flush_of_a_table_that_nobody_has_says_so(floe):
    done = floe_command("tables", "--http", floe.http, "flush", "nobody")
    assert done.returncode != 0 and "there is no table nobody" in done.stderr
