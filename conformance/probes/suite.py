"""Raw requests at every version, and the answers that Apache Kafka 4.4.0 gave to them, recorded in kafka-4.4.0-*.json.

The programs are ours (java/, with Kafka's own message classes and no client logic), so a difference is Floe's: a fault, or an
answer that its design makes right, with the reason in allowed.txt.
"""
import re

import jars
import lines
from suite import Suite

LIMIT_SECONDS = 1200
LINE = r"(?P<outcome>PASS|FAIL) (?P<name>\S+)(?: (?P<note>.*))?$"


class Probes(Suite):
    name = "probes"
    what = "raw requests, answers recorded from Apache Kafka 4.4.0"
    on_kafka = "all, it is the recording"
    needs = jars.NEEDS

    def prepare(self):
        jars.prepare(self)

    def run(self, floe, folder, only=()):
        chosen = [f"^({'|'.join(map(re.escape, only))})$"] if only else []
        tests = []
        for part in ("log", "groups"):
            recorded = self.folder / f"kafka-4.4.0-{part}.json"
            flags = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",)
            command = jars.command(self, "Probe", "compare", floe.kafka, recorded, *chosen, flags=flags)
            tests += lines.run(command, folder / f"{part}.log", LINE, LIMIT_SECONDS)
        return tests


SUITE = Probes()
