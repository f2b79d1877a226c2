"""The same records to Apache Kafka 4.4.0 and to Floe, compacted by both and compared record by record: java/Compaction.java.

Kafka is started here; what is compared was not recorded once but is found anew. What decision 0011 has otherwise is kept out
of the comparison: what lies in Kafka's active segment, base timestamps of batches, and when tombstones go from a quiet topic.
"""
import os
import sys

import jars
import lines
import peer
from kit import Floe
from suite import Suite

# Other records than those of the kept results, to look for what these do not show.
SEED = int(os.environ.get("COMPACTION_SEED", "0"))
LIMIT_SECONDS = 900
LINE = r"(?P<outcome>PASS|FAIL) (?P<name>.+?) \| (?P<seconds>[\d.]+) (?P<note>.*)$"
# Looks for something to compact as often as it may.
BACKOFF = {"log.cleaner.backoff.ms": "200"}
FLOE_SETTINGS = {f"kafka.{name}": value for name, value in BACKOFF.items()} | {"iceberg.enable": "false"}


class Compaction(Suite):
    name = "compaction"
    what = "the same records compacted by Apache Kafka 4.4.0 and by Floe, compared batch by batch"
    on_kafka = "it is what Floe is compared with"
    needs = jars.NEEDS
    brings_brokers = True
    borrows = ["probes/java/Wire.java"]

    def prepare(self):
        jars.prepare(self)

    def run(self, floe, folder, only=()):
        kafka, floe = peer.kafka(folder / "kafka", BACKOFF), Floe(folder, FLOE_SETTINGS)
        try:
            kafka.start()
            floe.start()
            chosen = sorted({name.partition(":")[0] for name in only})
            flags = ("-Xmx512m", f"-Dseed={SEED}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
            command = jars.command(self, "Compaction", kafka.address, floe.kafka, kafka.folder / "data", *chosen, flags=flags)
            return lines.run(command, folder / "checks.log", LINE, LIMIT_SECONDS)
        finally:
            kafka.stop()
            if floe.process is not None:
                floe.stop()


SUITE = Compaction()
