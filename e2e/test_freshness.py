"""Freshness in one session of each engine: select, produce, select again shows what was acknowledged in between.

The setting that an engine needs for this stands in docs/tables.md. Spark is asked the same in `make conformance`.
"""
import contextlib
import json
import threading

import polars
import pytest
from pyiceberg.catalog import load_catalog

from kit import duckdb_on, producer, send

ROUNDS = 5
QUERIES = 25
WRITER_SECONDS = 60
WRITER_PAUSE_SECONDS = 0.05
# Fewer than a table takes of one object.
NEW_COLUMNS_MAX = 90


@contextlib.contextmanager
def duckdb(floe, topic):
    with duckdb_on(floe) as lake:
        yield lambda: lake.sql(f"SELECT count(*) FROM lake.kafka.{topic}").fetchone()[0]


@contextlib.contextmanager
def duckdb_prepared(floe, topic):
    """A statement that was bound once."""
    with duckdb_on(floe) as lake:
        lake.execute(f"PREPARE counting AS SELECT count(*) FROM lake.kafka.{topic}")
        yield lambda: lake.execute("EXECUTE counting").fetchone()[0]


@contextlib.contextmanager
def pyiceberg(floe, topic):
    catalog = catalog_of(floe)
    yield lambda: catalog.load_table(("kafka", topic)).scan().to_arrow().num_rows


@contextlib.contextmanager
def pyiceberg_refreshed(floe, topic):
    """A table object that is kept: refresh() loads it again."""
    table = catalog_of(floe).load_table(("kafka", topic))
    yield lambda: table.refresh().scan().to_arrow().num_rows


@contextlib.contextmanager
def polars_frame(floe, topic):
    catalog = catalog_of(floe)
    yield lambda: polars.scan_iceberg(catalog.load_table(("kafka", topic))).collect().height


def catalog_of(floe):
    return load_catalog("floe", type="rest", uri=f"http://{floe.http}/iceberg")


@pytest.mark.parametrize("engine", [duckdb, duckdb_prepared, pyiceberg, pyiceberg_refreshed, polars_frame])
def test_one_session_sees_what_was_acknowledged_before_each_select(floe, topic, engine):
    send(floe, topic, [b"first"])
    with engine(floe, topic) as count:
        assert count() == 1
        for sent in range(2, ROUNDS + 2):
            send(floe, topic, [b"later"])
            assert count() == sent


class Writer:
    """Sends records until it is told to end, each in a batch of its own and, for as long as a table takes more, with a
    column that none before it had."""

    def __init__(self, floe, topic):
        self.client = producer(floe, **{"linger.ms": 0})
        self.topic, self.acknowledged, self.errors = topic, 0, []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        number = 0
        while not self.ended.wait(WRITER_PAUSE_SECONDS):
            value = json.dumps({"all": number, f"only_{number % NEW_COLUMNS_MAX}": number})
            self.client.produce(self.topic, value=value, on_delivery=self.on_delivery)
            self.client.flush(WRITER_SECONDS)
            number += 1

    def on_delivery(self, error, _):
        if error:
            self.errors.append(error)
        else:
            self.acknowledged += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join(WRITER_SECONDS)


def test_duckdb_loads_twice_while_every_batch_adds_a_column(floe, topic):
    """It binds one version and scans the next, which has more columns and rows: no query fails, and none is old."""
    send(floe, topic, [json.dumps({"all": -1})])
    with Writer(floe, topic) as writer, duckdb_on(floe) as lake:
        for number in range(QUERIES):
            before = writer.acknowledged + 1
            if number % 2:
                found = len(lake.sql(f"SELECT * EXCLUDE (_kafka_timestamp) FROM lake.kafka.{topic}").fetchall())
            else:
                found, = lake.sql(f"SELECT count(\"all\") FROM lake.kafka.{topic}").fetchone()
            assert found >= before
    assert writer.errors == []
    with duckdb_on(floe) as lake:
        columns = {row[0] for row in lake.sql(f"DESCRIBE lake.kafka.{topic}").fetchall()}
        new = min(writer.acknowledged, NEW_COLUMNS_MAX)
        assert {f"only_{number}" for number in range(new)} <= columns
        shown = lake.sql(f"SELECT count(*), sum(\"all\") FROM lake.kafka.{topic}").fetchone()
    assert shown == (writer.acknowledged + 1, sum(range(writer.acknowledged)) - 1)
