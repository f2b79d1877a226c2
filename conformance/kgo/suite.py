"""franz-go's own tests of its client kgo. On Kafka all of them pass, so any failure is the broker's."""
import subprocess

import go_tests
from suite import Suite

VERSION = "v1.22.3"
LIMIT_SECONDS = 300
JOBS = 2
# The suite's own default of 500,000 takes minutes a test; what it proves does not grow with it.
RECORDS = 5000


class Kgo(Suite):
    name = "kgo"
    what = f"franz-go kgo {VERSION}, its own tests"
    on_kafka = "152 pass, 4 skip themselves"
    needs = {"go": "golang-go"}
    settings = {"kafka.group.initial.rebalance.delay.ms": 0}
    package = "github.com/twmb/franz-go/pkg/kgo"

    @property
    def binary(self):
        return self.tools / f"kgo-{VERSION}.test"

    def prepare(self):
        go_tests.build(self.folder, f"franz-go {VERSION}", self.package, self.binary)

    def run(self, floe, folder, only=()):
        listed = subprocess.run(["go", "list", "-mod=readonly", "-f", "{{.Dir}}", self.package], cwd=self.folder,
                                capture_output=True, text=True, check=True)
        where = listed.stdout.strip()
        environment = {"KGO_SEEDS": floe.kafka, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": str(RECORDS)}
        tests = only or go_tests.names(self.binary, where, environment)
        return go_tests.run_all(self.binary, where, environment, folder, tests, LIMIT_SECONDS, JOBS)


SUITE = Kgo()
