"""What a suite is: a name, what it needs, and a way to run its tests against one broker.

A suite lives in the folder `conformance/NAME` as `suite.py` with a `SUITE`, beside its `allowed.txt`. Its sources are never
committed: `prepare` gets them, pinned, by their package clients into `.tools/conformance/NAME`.
"""
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = ROOT / "conformance"
PASS, FAIL, SKIP = "pass", "fail", "skip"
NOTE_CHARACTERS_MAX = 200
# Where something lies differs from machine to machine: notes keep names of files alone.
MARKS = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X): *")  # marks of other people's undone work, which tidy takes for ours
FOLDERS = re.compile(r"(?<![\w.:/])/(?:[\w.+@-]+/)+")


@dataclasses.dataclass
class Test:
    """The outcome of one test: PASS, FAIL or SKIP, its seconds, and the first words of why it did not pass."""

    # pytest would take it for one of its own.
    __test__ = False

    name: str
    outcome: str
    seconds: float = 0.0
    note: str = ""

    def __post_init__(self):
        assert self.outcome in (PASS, FAIL, SKIP), self.outcome
        self.note = MARKS.sub("", FOLDERS.sub("", " ".join(self.note.split())))[:NOTE_CHARACTERS_MAX]


class Suite:
    """One suite. Its class attributes are what the table of docs/conformance.md says about it.

    name: its folder; what: whose tests, in what version; on_kafka: what Apache Kafka 4.4.0 gets, in words; needs: programs that
    must be on the path, each with the Debian packages that have it; settings: floe's, where they are not the defaults;
    brings_brokers: it starts its own; borrows: Java files of other suites that its own need, below conformance/.
    """

    name = what = on_kafka = ""
    needs = {}
    settings = {}
    borrows = ()
    brings_brokers = False

    @property
    def folder(self):
        """What is committed of the suite."""
        return HERE / self.name

    @property
    def tools(self):
        """What `prepare` gets and builds; kept between runs."""
        return ROOT / ".tools" / "conformance" / self.name

    def prepare(self):
        """Gets and builds the suite, once; does nothing where it is there. Raises where it cannot."""

    def run(self, floe, folder, only=()):
        """Runs all tests, or those named, against a running broker; returns a list of Test.

        folder: an empty one, for logs and temporary files; it is kept where something failed.
        """
        raise NotImplementedError
