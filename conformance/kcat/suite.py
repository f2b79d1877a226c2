"""kcat 1.7.1, an old librdkafka (2.0.2): the commands that people type. `e2e/test_kcat.py` asks
more of some of them."""
import lines
from suite import Suite

LIMIT_SECONDS = 600
LINE = r"(?P<outcome>PASS|FAIL) (?P<name>[^:]+)(?:: (?P<note>.*))?$"


class Kcat(Suite):
    name = "kcat"
    what = "kcat 1.7.1 (librdkafka 2.0.2), checks of ours"
    on_kafka = "22 pass"
    needs = {"kcat": "kcat"}
    settings = {"kafka.group.initial.rebalance.delay.ms": 0}

    def run(self, floe, folder, only=()):
        # The checks build on each other, so all of them run, whatever is asked for.
        tests = lines.run([self.folder / "smoke.sh", floe.kafka], folder / "smoke.log", LINE, LIMIT_SECONDS)
        return [test for test in tests if not only or test.name in only]


SUITE = Kcat()
