"""kill -9 under load, 20 rounds on each kind of store: e2e/kill_rounds.py, of which `make test` runs two."""
import os
import random
import statistics
import tempfile
import time

import kill_rounds
from kit import S3
from lines import print_test
from suite import FAIL, PASS, Suite, Test

ROUNDS = int(os.environ.get("KILL_ROUNDS", "20"))
STORES = {"directory, SQLite": lambda: None, "S3, SQLite": S3}


class Kill(Suite):
    name = "kill"
    what = f"kill -9 under load, {ROUNDS} rounds a store, log and table compared with what was acknowledged"
    on_kafka = "not run"
    brings_brokers = True

    def run(self, floe, folder, only=()):
        with tempfile.TemporaryDirectory(dir=folder) as extensions:
            os.environ["FLOE_DUCKDB_EXTENSIONS"] = extensions
            return [self.run_one(name, folder) for name in STORES if not only or name in only]

    @staticmethod
    def run_one(name, folder):
        seed, began = random.randrange(2**32), time.monotonic()
        place = folder / name.split(",")[0]
        place.mkdir()
        try:
            records, starts = kill_rounds.run(place, "killed", ROUNDS, seed, STORES[name]())
            ready = f"ready again after {statistics.median(starts):.2f} s (median), {max(starts):.2f} s (most)"
            test = Test(name, PASS, time.monotonic() - began, f"{ROUNDS} kills, {records} records; {ready}")
        except AssertionError as error:
            test = Test(name, FAIL, time.monotonic() - began, f"seed {seed}: {error}")
        print_test(test)
        return test


SUITE = Kill()
