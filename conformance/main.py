"""Runs suites against floe, each on a broker of its own; conformance/run builds and says how it is used.

    main.py [SUITE...] [--only TEST]...     all suites by default; --only runs single tests and keeps no results
    main.py [SUITE...] --again              runs what the kept results say was wrong once more, and notes what passes now

Exits with 1 where a suite's verdict is not clean. A test that fails unexpectedly is run once more, alone: a loaded machine is
no fault of the broker, and the results say which needed it.
"""
import argparse
import importlib
import os
import pathlib
import resource
import shutil
import sys
import tempfile
import time
import traceback

from suite import HERE, PASS, ROOT, Test

sys.path.insert(0, str(ROOT / "e2e"))

import results  # noqa: E402
import verdict  # noqa: E402
from kit import Floe  # noqa: E402

# A retry is for what a loaded machine does to tests that measure time; where more fail, it would only take long.
SECOND_TRIES_MAX = 10
# Suites judge answers and not disks, and many of them measure time: their brokers write into memory where there is room.
MEMORY = pathlib.Path("/dev/shm")
MEMORY_BYTES_MIN = 2 << 30
SUITES = [
    "probes", "kcat", "javaclient", "kgo", "sarama", "librdkafka", "kafkajs", "kafkapython", "aiokafka", "spark", "engines",
    "compaction", "mirror", "kill",
]


def load(name):
    return importlib.import_module(f"{name}.suite").SUITE


def missing(suite):
    """What the suite needs and this machine does not have, in words."""
    return [f"{program} is missing: apt-get install {package}" for program, package in suite.needs.items()
            if shutil.which(program) is None]


def memory():
    """A folder in memory, or None where there is none with enough room."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
    return MEMORY if has_room else None


def children_cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_once(suite, folder, only):
    """The tests of one run, on a broker of its own."""
    (folder / "suite").mkdir(parents=True)
    if suite.brings_brokers:
        return suite.run(None, folder / "suite", only)
    broker = Floe(folder, suite.settings).start()
    try:
        return suite.run(broker, folder / "suite", only)
    finally:
        broker.stop()


def run_tests(suite, allowed, folder, only):
    """(tests, names that passed only on the second try)."""
    tests = run_once(suite, folder / "first", only)
    failed = [test.name for test in verdict.unexpected(tests, allowed)]
    if not 0 < len(failed) <= SECOND_TRIES_MAX:
        return tests, []
    print(f"{suite.name}: once more, alone: {', '.join(failed)}", flush=True)
    second = {test.name: test for test in run_once(suite, folder / "second", failed)}
    again = [name for name in failed if name in second and second[name].outcome == PASS]
    return [second[test.name] if test.name in again else test for test in tests], again


def run_again(suite, allowed, folder):
    """(tests, names that passed later than at first) of the kept results, with the wrong ones run once more."""
    kept = results.read_all()[suite.name]
    tests = [Test(name, *outcome) for name, outcome in kept["each"].items()]
    wrong = [test.name for test in verdict.unexpected(tests, allowed)]
    second = {test.name: test for test in run_once(suite, folder, wrong)} if wrong else {}
    again = [name for name in wrong if name in second and second[name].outcome == PASS]
    return [second[test.name] if test.name in again else test for test in tests], [*kept["second_try"], *again]


def run_suite(suite, only, is_again):
    """Runs one suite and writes its results; returns whether all is as it should be."""
    print(f"\n== {suite.name}: {suite.what}", flush=True)
    lacking = missing(suite)
    if lacking:
        print("\n".join(f"{suite.name}: {each}" for each in lacking))
        return False
    allowed = verdict.read_allowed(suite.folder)
    suite.prepare()
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"floe-{suite.name}-", dir=memory()))
    began, cpu = time.monotonic(), children_cpu_seconds()
    tests, again = run_again(suite, allowed, folder) if is_again else run_tests(suite, allowed, folder, only)
    costs = {"wall_seconds": time.monotonic() - began, "cpu_seconds": children_cpu_seconds() - cpu}
    if is_again:
        costs = {name: results.read_all()[suite.name][name] + seconds for name, seconds in costs.items()}
    judged = verdict.judge(tests, allowed, whole=not only)
    if not only:
        build = pathlib.Path(os.environ["FLOE_BIN"]).parent.name
        results.write(suite, build, tests, again, judged, costs)
    for each in judged.wrong:
        print(f"{suite.name}: WRONG: {each}")
    print(f"{suite.name}: {len(tests)} tests, {judged.passed} passed, {judged.excluded} excluded, {len(judged.wrong)} wrong, "
          f"{costs['wall_seconds']:.0f} s, {costs['cpu_seconds']:.0f} CPU s with the broker's", flush=True)
    if judged.wrong:
        print(f"{suite.name}: logs are kept in {folder}")
    else:
        shutil.rmtree(folder)
    return not judged.wrong


def try_suite(name, only, is_again):
    """run_suite, where what goes wrong with one suite does not keep the others from running."""
    try:
        return run_suite(load(name), only, is_again)
    except Exception:
        traceback.print_exc()
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--only", action="append", default=[], metavar="TEST")
    parser.add_argument("--again", action="store_true")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.suites if name not in SUITES]
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
    good = {name: try_suite(name, arguments.only, arguments.again) for name in arguments.suites or SUITES}
    bad = [name for name, fine in good.items() if not fine]
    print(f"\n{len(good) - len(bad)} passed, {len(bad)} failed{': ' if bad else ''}{', '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main())
