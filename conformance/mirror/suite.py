"""Moving from Apache Kafka with Kafka's own MirrorMaker 2: topics, records and groups' offsets, while producers go on.

The settings are those that docs/coming-from-kafka.md tells one to use, read from there; `checks.py` asks what has come over.
"""
import re

import jars
import lines
import peer
from kit import Floe, free_ports
from suite import ROOT, Suite

LIMIT_SECONDS = 600
LINE = r"(?P<outcome>PASS|FAIL) (?P<name>.+?) \| (?P<seconds>[\d.]+) (?P<note>.*)$"
PAGE = ROOT / "docs" / "coming-from-kafka.md"
# What the page has for the reader's own.
KAFKA, FLOE, REST = "old-kafka:9092", "floe:9092", "http://127.0.0.1:8083"


def documented():
    """The settings of MirrorMaker 2 as the page has them."""
    found, = re.findall(r"```properties\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert all(address in found for address in (KAFKA, FLOE, REST)), found
    return found


class Mirror(Suite):
    name = "mirror"
    what = "MirrorMaker 2 of Apache Kafka 4.3.0 moves topics and groups from Kafka 4.4.0 to Floe, checks of ours"
    on_kafka = "it is what is moved from"
    needs = jars.NEEDS
    brings_brokers = True

    def prepare(self):
        jars.prepare(self)

    def run(self, floe, folder, only=()):
        kafka, floe = peer.kafka(folder / "kafka"), Floe(folder)
        rest, = free_ports(1)
        try:
            kafka.start()
            floe.start()
            text = documented().replace(KAFKA, kafka.address).replace(FLOE, floe.kafka)
            settings = folder / "mirror.properties"
            settings.write_text(text.replace(REST, f"http://127.0.0.1:{rest}"))
            maker = jars.command(self, "org.apache.kafka.connect.mirror.MirrorMaker", settings)
            command = ["python", self.folder / "checks.py", kafka.address, floe.kafka, floe.http, folder, *maker]
            # The checks build on each other, so all of them run, whatever is asked for.
            tests = lines.run(list(map(str, command)), folder / "checks.log", LINE, LIMIT_SECONDS)
            return [test for test in tests if not only or test.name in only]
        finally:
            kafka.stop()
            if floe.process is not None:
                floe.stop()


SUITE = Mirror()
