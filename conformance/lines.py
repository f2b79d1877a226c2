"""Runs programs that print a line `PASS NAME` or `FAIL NAME` for each of their tests, as our own checks do."""
import re
import subprocess
import threading

from suite import FAIL, PASS, Test

OUTCOMES = {"PASS": PASS, "FAIL": FAIL}


def run(command, log, pattern, limit_seconds, **options):
    """Runs a command and returns the tests of its output, which also goes to the file `log`.

    pattern: a regular expression with the groups outcome, name and note, and seconds where a line has them. A program that
    does not end within the limit is killed; what it had not told by then is missing, which the verdict notices.
    """
    line_of, tests = re.compile(pattern), []
    with log.open("w") as kept:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=kept, text=True, errors="replace", **options)
        killer = threading.Timer(limit_seconds, process.kill)
        killer.start()
        try:
            for line in process.stdout:
                kept.write(line)
                match = line_of.match(line)
                if match:
                    tests.append(as_test(match))
                    print_test(tests[-1])
            process.wait()
        finally:
            killer.cancel()
    if process.returncode not in (0, 1):
        tests.append(Test("the program itself", FAIL, 0, f"exited with {process.returncode}"))
    return tests


def as_test(match):
    groups = match.groupdict()
    outcome = OUTCOMES[groups["outcome"]]
    note = "" if outcome == PASS else groups["note"] or ""
    return Test(groups["name"].strip(), outcome, float(groups.get("seconds") or 0), note)


def print_test(test):
    print(f"{test.outcome:<5}{test.seconds:>7.1f} s  {test.name}  {test.note}", flush=True)
