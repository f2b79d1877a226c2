"""kill -9 under load, 20 rounds on each kind of store: e2e/kill_rounds.py, of which `make test` runs two."""
import os
import random
import tempfile
import time

import kill_rounds
from kit import S3, Servers
from lines import print_test
from suite import FAIL, PASS, Suite, Test

ROUNDS = int(os.environ.get("KILL_ROUNDS", "20"))
# The kills of two in three rounds are aimed at a table commit; of this many rounds, at least one must have hit.
AIMED_ROUNDS_MIN = 10
HITS = "kills hit table commits"
STORES = {"directory, SQLite": lambda: None, "S3, SQLite": S3, "S3, PostgreSQL": Servers}


class Kill(Suite):
    name = "kill"
    what = f"kill -9 under load, {ROUNDS} rounds a store, log and table compared with what was acknowledged"
    on_kafka = "not run"
    brings_brokers = True

    def run(self, floe, folder, only=()):
        with tempfile.TemporaryDirectory(dir=folder) as extensions:
            os.environ["FLOE_DUCKDB_EXTENSIONS"] = extensions
            outcomes = [self.run_one(name, folder) for name in STORES if not only or {name, HITS} & set(only)]
        tests, reports = [test for test, _ in outcomes], [report for _, report in outcomes if report]
        if len(reports) == len(STORES) and ROUNDS >= AIMED_ROUNDS_MIN:
            hits = sum(report.hits for report in reports)
            tests.append(Test(HITS, PASS if hits else FAIL, 0, f"{hits} of {ROUNDS * len(STORES)}"))
            print_test(tests[-1])
        return tests

    @staticmethod
    def run_one(name, folder):
        """(Test, Report of kill_rounds or None) of one store."""
        seed, began, report = random.randrange(2**32), time.monotonic(), None
        place = folder / name.replace(", ", "-")
        place.mkdir()
        try:
            report = kill_rounds.run(place, "killed", ROUNDS, seed, STORES[name]())
            test = Test(name, PASS, time.monotonic() - began, str(report))
        except AssertionError as error:
            test = Test(name, FAIL, time.monotonic() - began, f"seed {seed}: {error}")
        print_test(test)
        return test, report


SUITE = Kill()
