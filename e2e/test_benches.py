"""The benches that are Rust programs run, with tiny sizes: what they measure is measured elsewhere."""
import json
import os
import pathlib
import subprocess

import pytest

EXAMPLES = pathlib.Path(os.environ.get("FLOE_BIN") or "target/debug/floe").resolve().parent / "examples"
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
