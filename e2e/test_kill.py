"""What was acknowledged is there after kill -9 under load: in the log and in the table. `make conformance ARGS=kill` does more."""
import random

import pytest

import kill_rounds
from kit import S3, Servers

ROUNDS = 2
STORES = {"directory": lambda: None, "S3": S3, "S3, PostgreSQL": Servers}


@pytest.mark.parametrize("store", STORES)
def test_acknowledged_records_survive_kill_9(store, tmp_path, topic):
    seed = random.randrange(2**32)
    report = kill_rounds.run(tmp_path, topic, ROUNDS, seed, STORES[store]())
    assert report.records > 0 and len(report.starts) == ROUNDS


class Record:
    """What check_log looks at of a consumed record."""

    def __init__(self, offset, value):
        self.offset, self.value = lambda: offset, lambda: value.encode()


def log_and_notes():
    """A log as it should be, with a retry of the producer without idempotence, and what its producers were told."""
    values = {0: ["a:0", "a:1"], 1: ["b:0", "b:1", "b:1"], 2: ["c:0", "d:0", "c:1"]}
    records = {each: [Record(*place) for place in enumerate(log)] for each, log in values.items()}
    return records, {"a": [(0, 0), (1, 1)], "b": [(0, 0), (1, 2)], "c": [(0, 0), (1, 2)], "d": [(0, 1)]}


def test_the_check_takes_a_right_log():
    kill_rounds.check_log(*log_and_notes())


@pytest.mark.parametrize(("partition", "log"), [
    (0, ["a:0"]), (0, ["a:1", "a:0"]), (0, ["a:0", "a:1", "a:1"]), (1, ["b:0", "b:0", "b:0"]), (2, ["c:0", "c:1", "d:0"]),
], ids=["lost", "out of order", "twice", "lost among retries", "elsewhere"])
def test_the_check_finds_a_wrong_log(partition, log):
    records, told = log_and_notes()
    records[partition] = [Record(*place) for place in enumerate(log)]
    with pytest.raises(AssertionError):
        kill_rounds.check_log(records, told)
