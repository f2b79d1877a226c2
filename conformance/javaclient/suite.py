"""Apache Kafka's own Java client: 34 checks of ours (java/ClientCheck.java), from admin calls to share groups."""
import re

import jars
import lines
from suite import Suite

LIMIT_SECONDS = 1800
LINE = r"(?P<outcome>PASS|FAIL) (?P<name>\S+) +(?P<seconds>[\d.]+) s  (?P<note>.*)$"


class JavaClient(Suite):
    name = "javaclient"
    what = "kafka-clients 4.4.0, checks of ours"
    on_kafka = "34 pass"
    needs = jars.NEEDS

    def prepare(self):
        jars.prepare(self)

    def run(self, floe, folder, only=()):
        chosen = [f"^({'|'.join(map(re.escape, only))})$"] if only else []
        flags = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
        command = jars.command(self, "ClientCheck", floe.kafka, *chosen, flags=flags)
        return lines.run(command, folder / "checks.log", LINE, LIMIT_SECONDS)


SUITE = JavaClient()
