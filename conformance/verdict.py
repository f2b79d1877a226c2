"""Compares what a suite's tests did with the list of those that are known not to pass.

The list is strict both ways: a test that did not pass must stand in it, and what stands in it must not pass. So a mended fault
comes off the list in the commit that mends it, and nothing can hide behind a pattern. """
import dataclasses

from suite import PASS

SEPARATOR = " | "
REASON_CHARACTERS_MIN = 15


def parse_allowed(text):
    """{test: reason} of an allow-list: a line `TEST | REASON` each, `#` begins a comment. Raises ValueError."""
    allowed = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, separator, reason = (part.strip() for part in line.partition(SEPARATOR))
        if not separator or len(reason) < REASON_CHARACTERS_MIN:
            raise ValueError(f"line {number}: `TEST{SEPARATOR}REASON` is wanted, with a reason that says something")
        if name in allowed:
            raise ValueError(f"line {number}: {name} stands here twice")
        allowed[name] = reason
    return allowed


def read_allowed(folder):
    """The allow-list of a suite's folder; nothing is allowed where there is none."""
    path = folder / "allowed.txt"
    return parse_allowed(path.read_text()) if path.exists() else {}


@dataclasses.dataclass
class Verdict:
    """passed, excluded: numbers of tests; wrong: a sentence for each that makes the run fail."""

    passed: int
    excluded: int
    wrong: list


def unexpected(tests, allowed):
    """The tests that did not pass although nothing allows them not to."""
    return [test for test in tests if test.outcome != PASS and test.name not in allowed]


def judge(tests, allowed, whole):
    """The verdict on a run. whole: every test was run, so one that is missing is an error."""
    wrong = [f"{test.name}: {test.outcome}: {test.note}" for test in unexpected(tests, allowed)]
    passed = {test.name for test in tests if test.outcome == PASS}
    wrong += [f"{name}: passes, although it is on the list: take it off" for name in allowed if name in passed]
    names = [test.name for test in tests]
    wrong += [f"{name}: ran twice under one name" for name in sorted({name for name in names if names.count(name) > 1})]
    if whole:
        wrong += [f"{name}: is on the list, and no test has that name" for name in allowed if name not in names]
    if not tests:
        wrong.append("no test ran")
    return Verdict(len(passed), sum(1 for test in tests if test.outcome != PASS and test.name in allowed), wrong)
