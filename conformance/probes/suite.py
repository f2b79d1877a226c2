"""Raw requests at every version, and the answers that Apache Kafka 4.4.0 gave to them, recorded in kafka-4.4.0-*.json.

The programs are ours (java/, with Kafka's own message classes and no client logic), so a difference is Floe's: a fault, or an
answer that its design makes right, with the reason in allowed.txt.
"""
import collections
import re

import jars
import lines
import verdict
from suite import FAIL, Suite, Test

LIMIT_SECONDS = 1200
DIFFERS = re.compile(r"^DIFFERS (\S+): (.*?) => (.*)$", re.MULTILINE)
LINE = r"(?P<outcome>PASS|FAIL) (?P<name>\S+)(?: (?P<note>.*))?$"


class Probes(Suite):
    name = "probes"
    what = "raw requests, answers recorded from Apache Kafka 4.4.0"
    on_kafka = "all, it is the recording"
    needs = jars.NEEDS
    # What the recorded broker was set to.
    settings = {"kafka.num.partitions": 1, "kafka.group.initial.rebalance.delay.ms": 0}

    def prepare(self):
        jars.prepare(self)

    def run(self, floe, folder, only=()):
        scenarios = {name.partition(": ")[0] for name in only}
        chosen = [f"^({'|'.join(map(re.escape, scenarios))})$"] if only else []
        listed, tests = verdict.read_allowed(self.folder), []
        for part in ("log", "groups"):
            recorded = self.folder / f"kafka-4.4.0-{part}.json"
            flags = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",)
            command = jars.command(self, "Probe", "compare", floe.kafka, recorded, *chosen, flags=flags)
            log = folder / f"{part}.log"
            found = lines.run(command, log, LINE, LIMIT_SECONDS)
            facts = differing_facts(log.read_text(), listed)
            tests += [each for test in found for each in facts.get(test.name, [test])]
        return tests


def differing_facts(log, listed):
    """{scenario: a failed Test per fact that differs}, without the scenarios that are listed whole."""
    facts = collections.defaultdict(list)
    for scenario, fact, note in DIFFERS.findall(log):
        if scenario not in listed:
            facts[scenario].append(Test(f"{scenario}: {fact}", FAIL, 0, note))
    return facts


SUITE = Probes()
