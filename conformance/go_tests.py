"""Runs the tests of a Go test binary one by one, each in a process of its own with a time limit.

One by one, because a test that hangs or panics ends its whole process: so it harms no other, and each has its own log.
"""
import concurrent.futures
import contextlib
import os
import re
import subprocess
import time

from lines import print_test
from suite import FAIL, PASS, SKIP, Test

OUTCOMES = {"PASS": PASS, "FAIL": FAIL, "SKIP": SKIP}
DONE = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)", re.MULTILINE)
WHY = re.compile(r"^\s+\S+_test\.go:\d+: .*|^panic: .*", re.MULTILINE)


def build(folder, module, package, binary, *flags):
    """Compiles the tests of a dependency of the Go module in `folder`, unless the binary is there."""
    if binary.exists():
        return
    binary.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    print(f"building {module}", flush=True)
    subprocess.run(["go", "test", "-c", *flags, "-o", binary, package], cwd=folder, env=environment, check=True)


def names(binary, folder, environment, pattern="^Test"):
    """The tests of a binary, in their order. What it wants to find before its tests, it wants here too."""
    listed = subprocess.run([binary, "-test.list", pattern], cwd=folder, env=os.environ | environment, capture_output=True,
                            text=True, check=True)
    return [line for line in listed.stdout.splitlines() if line.startswith("Test")]


def outcome(name, log, seconds):
    """The Test that a log of its own tells of; a process that ended without saying is a failure."""
    done = {match[2]: (OUTCOMES[match[1]], float(match[3])) for match in DONE.finditer(log)}
    result, seconds = done.get(name, (FAIL, seconds))
    why = WHY.search(log)
    note = "" if result == PASS else (why[0] if why else "the process ended without a result")
    return Test(name, result, seconds, note)


def run_all(binary, where, environment, folder, tests, limit_seconds, jobs):
    """Runs tests, so many at once; where: the folder they expect to be in; folder: for a log each."""
    def run_one(name):
        command = [binary, "-test.v", f"-test.timeout={limit_seconds}s", "-test.run", f"^{name}$"]
        began = time.monotonic()
        # Go ends a test that takes too long, and shows where it stood; only a process that cannot even do that is killed.
        with (folder / f"{name}.log").open("wb") as log, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, cwd=where, env=os.environ | environment, stdout=log, stderr=log,
                           timeout=2 * limit_seconds)
        test = outcome(name, (folder / f"{name}.log").read_text(errors="replace"), time.monotonic() - began)
        print_test(test)
        return test

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(run_one, tests))
