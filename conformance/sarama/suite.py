"""IBM/sarama's functional tests. They want five brokers behind a toxiproxy and topics of three replicas; three lines of their
set-up are changed so that they run on one broker. What cannot pass so on Kafka either stands in allowed.txt, and says so."""
import json
import os
import shutil
import subprocess

import go_tests
from suite import Suite

VERSION = "v1.61.1"
MODULE = "github.com/IBM/sarama"
LIMIT_SECONDS = 120
# All of them use the same topics, and make them anew.
JOBS = 1
# The newest version that the tests are told to expect.
KAFKA_VERSION = "4.1.0"
FILE = "functional_test.go"
CHANGES = [
    ("ReplicationFactor: 3,", "ReplicationFactor: 1,"),
    ("for i := 1; i <= 5; i++ {", "for i := 1; i <= 0; i++ {"),
    ("env.KafkaBrokerAddrs = nil", 'env.KafkaBrokerAddrs = []string{os.Getenv("FLOE_BROKER")}'),
    ("FunctionalTestEnv.ToxiproxyClient.ResetState()", "error(nil)"),
]


class Sarama(Suite):
    name = "sarama"
    what = f"IBM/sarama {VERSION}, its functional tests"
    on_kafka = "53 pass, 13 want more than one broker, 5 skip themselves"
    needs = {"go": "golang-go"}

    @property
    def source(self):
        return self.tools / VERSION

    @property
    def binary(self):
        return self.source / "functional.test"

    def prepare(self):
        if self.binary.exists():
            return
        environment = os.environ | {"GOFLAGS": "-mod=mod", "GOWORK": "off"}
        asked = ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"]
        found = subprocess.run(asked, cwd=self.folder, env=environment, capture_output=True, text=True, check=True)
        shutil.rmtree(self.source, ignore_errors=True)
        shutil.copytree(json.loads(found.stdout)["Dir"], self.source, copy_function=shutil.copyfile)
        for path in [self.source, *self.source.rglob("*/")]:
            path.chmod(0o755)
        text = (self.source / FILE).read_text()
        for before, after in CHANGES:
            assert before in text, f"sarama {VERSION}: {FILE} has no {before}"
            text = text.replace(before, after)
        (self.source / FILE).write_text(text)
        go_tests.build(self.source, f"sarama {VERSION}", ".", self.binary, "-tags", "functional")

    def run(self, floe, folder, only=()):
        environment = {
            "FLOE_BROKER": floe.kafka, "TOXIPROXY_ADDR": "http://127.0.0.1:1", "KAFKA_VERSION": KAFKA_VERSION,
        }
        tests = only or go_tests.names(self.binary, self.source, environment)
        return go_tests.run_all(self.binary, self.source, environment, folder, tests, LIMIT_SECONDS, JOBS)


SUITE = Sarama()
