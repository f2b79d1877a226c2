"""A suite's results as a file: conformance/results/SUITE.json, a line a test, so that a change is seen in the diff."""
import datetime
import json
import subprocess

from suite import HERE, ROOT

FOLDER = HERE / "results"


def commit():
    """The commit that is checked out, with `-dirty` where the tree has other changes than results."""
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changes = git("status", "--porcelain", "--", ".", f":!{FOLDER.relative_to(ROOT)}")
    return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changes else "")


def write(suite, build, tests, again, verdict, costs):
    """Writes a suite's results. again: names of tests that passed on the second try; costs: seconds by name."""
    FOLDER.mkdir(exist_ok=True)
    outcomes = [test.outcome for test in tests]
    result = {
        "suite": suite.name,
        "what": suite.what,
        "kafka": suite.on_kafka,
        "commit": commit(),
        "build": build,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "tests": len(tests),
        "passed": outcomes.count("pass"),
        "excluded": verdict.excluded,
        "wrong": len(verdict.wrong),
        "second_try": sorted(again),
        **{name: round(seconds, 1) for name, seconds in costs.items()},
        "each": {test.name: [test.outcome, round(test.seconds, 2), test.note] for test in tests},
    }
    head = {key: value for key, value in result.items() if key != "each"}
    lines = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in result["each"].items()]
    text = json.dumps(head, indent=1)[:-2] + ',\n "each": {\n' + ",\n".join(lines) + "\n }\n}\n"
    assert json.loads(text) == result
    (FOLDER / f"{suite.name}.json").write_text(text)


def read_all():
    """The results that are kept, by suite."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
