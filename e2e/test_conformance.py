"""The conformance page shows the kept results, these fit the allow-lists, and the verdict on a run is strict both ways."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "conformance"))

import matrix  # noqa: E402
import results  # noqa: E402
import verdict  # noqa: E402
from suite import FAIL, HERE, PASS, SKIP, Test  # noqa: E402


def wrong(tests, allowed, whole=True):
    return verdict.judge(tests, allowed, whole).wrong


def test_the_page_shows_the_results():
    done = subprocess.run([sys.executable, ROOT / "conformance" / "table", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(results.read_all()))
def test_kept_results_fit_the_allow_lists(name):
    result = results.read_all()[name]
    tests = [Test(test, *outcome) for test, outcome in result["each"].items()]
    judged = verdict.judge(tests, verdict.read_allowed(HERE / name), whole=True)
    assert judged.wrong == []
    assert (judged.passed, judged.excluded) == (result["passed"], result["excluded"])


def test_what_does_not_pass_must_be_listed():
    assert wrong([Test("a", PASS), Test("b", FAIL)], {"b": "reason"}) == []
    assert "b: fail" in wrong([Test("a", PASS), Test("b", FAIL)], {})[0]
    assert "b: skip" in wrong([Test("a", PASS), Test("b", SKIP)], {})[0]


def test_what_is_listed_must_not_pass():
    assert "take it off" in wrong([Test("a", PASS)], {"a": "reason"})[0]


def test_what_is_listed_must_exist():
    assert "no test has that name" in wrong([Test("a", PASS)], {"gone": "reason"})[0]
    assert wrong([Test("a", PASS)], {"gone": "reason"}, whole=False) == []


def test_a_run_without_tests_is_wrong():
    assert wrong([], {}) == ["no test ran"]


def test_an_allow_list_needs_reasons():
    assert verdict.parse_allowed("# why\n\na b: c | not built yet, and why\n") == {"a b: c": "not built yet, and why"}
    for text in ("a\n", "a |\n", "a | no\n", "a | a reason that is long\na | another one, also long\n"):
        with pytest.raises(ValueError):
            verdict.parse_allowed(text)


def test_the_table_of_engines_tells_what_each_did_with_each_construct():
    outcomes = {"A: one": PASS, "A: two: more": FAIL, "B: one": FAIL}
    assert matrix.lines(outcomes, {"A: two: more": "reason"})[2:] == [
        "| one | yes | **wrong** |", "| two: more | otherwise | not run |", "| **of 2** | 1 | 0 |"]
