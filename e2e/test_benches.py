"""The benches that need no peer run, with tiny sizes: what they measure is measured elsewhere."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

FLOE = pathlib.Path(os.environ.get("FLOE_BIN") or "target/debug/floe").resolve()
EXAMPLES = FLOE.parent / "examples"
SECONDS_MAX = 120


def run(name, *arguments):
    done = subprocess.run([EXAMPLES / name, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_encode_bench_counts_rows_of_both_sides():
    # Over a thousand minutes: every hour of a day is among the records.
    found = json.loads(run("encode_bench", 1_500, 1))
    [pair] = found["rounds"]
    assert pair["floe"]["parquet_bytes_per_row"] == pair["by_hand"]["parquet_bytes_per_row"]
    assert min(side["rows_per_s"] for side in pair.values()) > 0


@pytest.mark.parametrize(("question", "count", "files"), [("looks", 20, "data_files"), ("hour", 1, "files_a_quarter_later")])
def test_looks_bench_answers(question, count, files):
    assert json.loads(run("looks_bench", question, count))[files] >= 1


def test_an_hour_counts_what_is_written_on_both_stores():
    found = json.loads(run("an_hour", "written", 2))
    assert [each["store"] for each in found] == ["remote store", "local disk"]
    for each in found:
        for side in (each["hour"], each["full"]):
            assert side["produces"] == 2_000
            assert side["catch_up_mb_per_s"] > 0


def test_an_hour_fetches_from_logs_of_both_sizes():
    found = json.loads(run("an_hour", "fetch", 4))
    assert [each["kind"] for each in found] == ["reading on", "at random"]
    assert min(each[size] for each in found for size in ("small_us", "large_us")) > 0


@pytest.mark.parametrize("name", ["large_transaction", "heartbeats"])
def test_a_bench_of_floe_alone_works(name):
    environment = os.environ | {"FAST": "1", "FLOE_BIN": str(FLOE)}
    main = pathlib.Path(__file__).parent.parent / "benches/main.py"
    done = subprocess.run(
        [sys.executable, main, name], capture_output=True, text=True, timeout=SECONDS_MAX, env=environment)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    assert f"{name}: works" in done.stdout
