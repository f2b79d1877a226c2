"""Other people's engines on the tables of JSON topics, construct by construct (constructs.py, histories.py), through Floe's catalog.

A test is `ENGINE: CONSTRUCT`. Each engine is one session (sessions.py, trino.py, spark.py) as long as there are questions.
"""
import json
import os
import subprocess
import threading
import time
from functools import partial

import jars
import matrix
import venvs
import verdict
from kit import S3, Floe
from lines import print_test
from suite import FAIL, PASS, Suite, Test

from engines import histories, spark, trino
from engines.constructs import PLAIN
from engines.spelling import spell

QUESTION_SECONDS = 90
# Rows come in any order, and are put into this one.
PLACE = ["_kafka_partition", "_kafka_offset"]
ENGINES = ["DuckDB", "PyIceberg", "Polars", "Daft", "DataFusion", "ClickHouse"]
TRINO, SPARK = "Trino", "Spark"
TEXTS_ARE_BYTES = ["ClickHouse"]


class Process:
    """An engine of sessions.py. ask() raises AssertionError with what the engine said, or when it says nothing in time."""

    def __init__(self, suite, engine, environment, folder):
        command = [venvs.python(suite), suite.folder / "sessions.py", engine]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(command, cwd=folder, env=os.environ | environment, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, text=True)

    def ask(self, table, columns, where):
        killer = threading.Timer(QUESTION_SECONDS, self.process.kill)
        killer.start()
        try:
            self.process.stdin.write(f"{json.dumps({'table': table, 'columns': columns, 'where': where})}\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            killer.cancel()
        assert line, "the engine ended, or did not answer in time"
        answer = json.loads(line)
        assert "rows" in answer, answer["error"]
        return answer["rows"]

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(QUESTION_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Session:
    """What the checks ask; `asked` is the engine's Process, Trino or Spark."""

    def __init__(self, engine, asked):
        self.engine, self.asked = engine, asked

    def ask(self, table, columns, where=""):
        """Rows as `spell` has them, in the order of partitions and offsets, without the place unless it was asked for."""
        found = self.asked.ask(table, list(dict.fromkeys([*columns, *PLACE])), where)
        hidden = [name for name in PLACE if name not in columns]
        rows = sorted(found, key=lambda row: [row[name] for name in PLACE])
        return [{name: value for name, value in row.items() if name not in hidden} for row in rows]

    def expect(self, table, columns, rows, where=""):
        """Fails where the engine shows other rows than these."""
        got = [text(row) for row in self.ask(table, columns, where)]
        wanted = [text(spell(row, self.engine in TEXTS_ARE_BYTES)) for row in rows]
        assert len(got) == len(wanted), f"{len(got)} rows, want {len(wanted)}"
        for at, (mine, other) in enumerate(zip(wanted, got)):
            assert mine == other, f"row {at}: got {other}, want {mine}"


def text(row):
    """One spelling of a row, in which 1, 1.0 and true differ."""
    return json.dumps(row, sort_keys=True, ensure_ascii=False)


def ask_plain(construct, session, _):
    session.expect(construct.topic, construct.columns, construct.rows, construct.where)


class Engines(Suite):
    name = "engines"
    what = ("tables of JSON topics, construct by construct, in DuckDB 1.5.5, PyIceberg 0.12.0, Polars 2.1.0, Daft 0.7.26, "
            "DataFusion 54.0.0 (iceberg-rust by pyiceberg-core 0.11.0), ClickHouse 26.9 (chdb 4.4.0), Trino 483 and Spark 4.1.1, "
            "checks of ours")
    on_kafka = "no tables there"
    needs = jars.NEEDS
    brings_brokers = True
    # Some records are dated years back: the log would let go of them at once, and a table may miss them then.
    settings = {"kafka.log.retention.ms": "-1"}

    def prepare(self):
        venvs.prepare(self)
        trino.prepare(self)
        spark.prepare()

    def run(self, floe, folder, only=()):
        store = S3()
        engines = ENGINES + ([TRINO] if trino.JAVA_HOME else [])
        tests = self.run_broker(Floe(folder, store.settings | self.settings, store.environment), engines, folder, only)
        tests += self.run_broker(Floe(folder / SPARK, self.settings), [SPARK], folder, only)
        outcomes = {test.name: test.outcome for test in tests}
        print("\n".join(matrix.lines(outcomes, verdict.read_allowed(self.folder))), flush=True)
        return tests

    def run_broker(self, floe, engines, folder, only):
        """Asks the engines for the tables of one broker."""
        checks = {construct.name: partial(ask_plain, construct) for construct in PLAIN} | histories.CHECKS
        asked = {engine: {name: check for name, check in checks.items() if not only or f"{engine}: {name}" in only}
                 for engine in engines}
        asked = {engine: checks for engine, checks in asked.items() if checks}
        if not asked:
            return []
        for engine in asked:
            (folder / engine).mkdir()
        floe.start()
        try:
            histories.fill(floe, PLAIN)
            return [test for engine, checks in asked.items() for test in self.run_engine(engine, checks, floe, folder / engine)]
        finally:
            floe.stop()

    def run_engine(self, engine, checks, floe, folder):
        store = S3
        environment = {
            "CATALOG_URI": f"http://{floe.http}/iceberg", "WAREHOUSE": "floe", "S3_ENDPOINT": os.environ["FLOE_TEST_S3"],
            "S3_BUCKET": store.bucket, "S3_REGION": store.region, "S3_ACCESS_KEY": store.key, "S3_SECRET_KEY": store.secret,
            "TMPDIR": str(folder), "DAFT_ANALYTICS_ENABLED": "0"}
        if engine == TRINO:
            running = trino.Trino(self, environment, folder)
        elif engine == SPARK:
            running = spark.Spark(floe, folder)
        else:
            running = Process(self, engine, environment, folder)
        try:
            session = Session(engine, running)
            return [self.run_one(f"{engine}: {name}", check, session, floe) for name, check in checks.items()]
        finally:
            running.close()

    @staticmethod
    def run_one(name, check, session, floe):
        began = time.monotonic()
        try:
            check(session, floe)
            test = Test(name, PASS, time.monotonic() - began)
        except AssertionError as error:
            test = Test(name, FAIL, time.monotonic() - began, str(error))
        print_test(test)
        return test


SUITE = Engines()
