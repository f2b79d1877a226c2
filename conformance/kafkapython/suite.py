"""kafka-python: its own integration tests, out of its source package.

The package leaves out two files of its tests: the mark of a package, and what starts a broker, which we bring.
"""
import os
import pathlib
import re
import subprocess
import xml.etree.ElementTree as XML

import venvs
from lines import print_test
from suite import FAIL, PASS, SKIP, Suite, Test

VERSION = "3.0.12"
# What the tests take the broker for; one of them wants to infer it.
KAFKA_VERSION = "4.3"
LIMIT_SECONDS = 1200
TEST_LIMIT_SECONDS = 60
NO_SERVICE = '''class ExternalService:
    def __init__(self, host, port): self.host, self.port = host, port
    def open(self): pass
    close = dump_logs = open
    def wait_for(self, *_, **__): pass
class SpawnedService: pass
'''
# It starts a broker of its own.
LEFT_OUT = "test/integration/test_ssl_integration.py"


class KafkaPython(Suite):
    name = "kafkapython"
    what = f"kafka-python {VERSION}, its own integration tests but test_ssl_integration.py, which starts a broker of its own"
    on_kafka = "53 pass, 2 want other settings, 10 skip themselves"
    # One test assigns replicas to broker 0, and one asks for sessions of 3 s, which is below Kafka's default.
    settings = {
        "kafka.num.partitions": 4, "kafka.node.id": 0, "kafka.group.initial.rebalance.delay.ms": 0,
        "kafka.group.min.session.timeout.ms": 1000,
    }

    @property
    def sources(self):
        return self.tools / f"kafka_python-{VERSION}"

    def prepare(self):
        venvs.prepare(self)
        if (self.sources / "test" / "service.py").exists():
            return
        package = f"kafka-python=={VERSION}"
        venvs.pip(self, "download", "--no-deps", "--no-binary", "kafka-python", package, "-d", self.tools)
        subprocess.run(["tar", "xzf", f"{self.sources}.tar.gz", "-C", self.tools], check=True)
        (self.sources / "test" / "__init__.py").touch()
        (self.sources / "servers" / KAFKA_VERSION / "kafka-bin").mkdir(parents=True)
        (self.sources / "test" / "service.py").write_text(NO_SERVICE)

    def run(self, floe, folder, only=()):
        report = folder / "report.xml"
        chosen = ["-k", " or ".join(re.split(r"[.\[]", name)[1] for name in only)] if only else []
        command = [venvs.python(self), "-m", "pytest", "test/integration", "--deselect", LEFT_OUT, f"--junitxml={report}",
                   f"--timeout={TEST_LIMIT_SECONDS}", "--timeout-method=signal", "-p", "no:cacheprovider", "-q",
                   "-o", "log_level=CRITICAL", "-o", "addopts=", "-W", "ignore", *chosen]
        environment = os.environ | {"KAFKA_URI": f"kafka://{floe.kafka}", "KAFKA_VERSION": KAFKA_VERSION, "PYTHONPATH": "."}
        with (folder / "pytest.log").open("w") as log:
            subprocess.run(command, cwd=self.sources, env=environment, stdout=log, stderr=log, timeout=LIMIT_SECONDS)
        tests = [as_test(case) for case in XML.parse(report).iter("testcase")]
        for test in tests:
            print_test(test)
        return [test for test in tests if not only or test.name in only]


def as_test(case):
    """The Test of a case in pytest's report."""
    name = f"{pathlib.Path(case.get('classname').replace('.', '/')).name}.{case.get('name')}"
    for outcome, tags in ((FAIL, ("failure", "error")), (SKIP, ("skipped",))):
        for tag in tags:
            found = case.find(tag)
            if found is not None:
                return Test(name, outcome, float(case.get("time")), found.get("message") or "")
    return Test(name, PASS, float(case.get("time")))


SUITE = KafkaPython()
