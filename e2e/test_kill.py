"""What was acknowledged is there after kill -9 under load: in the log and in the table. `make conformance ARGS=kill` does more."""
import random

import pytest

import kill_rounds
from kit import S3

ROUNDS = 2


@pytest.mark.parametrize("store", ["directory", "S3"])
def test_acknowledged_records_survive_kill_9(store, tmp_path, topic):
    seed = random.randrange(2**32)
    records, starts = kill_rounds.run(tmp_path, topic, ROUNDS, seed, S3() if store == "S3" else None)
    assert records > 0 and len(starts) == ROUNDS
