"""aiokafka: the client of Python's asyncio; checks of ours (checks.py). Its source package has no tests."""
import lines
import venvs
from suite import Suite

LIMIT_SECONDS = 600
LINE = r"(?P<outcome>PASS|FAIL) (?P<name>.+?) \| (?P<seconds>[\d.]+) (?P<note>.*)$"


class AioKafka(Suite):
    name = "aiokafka"
    what = "aiokafka 0.14.0, checks of ours"
    on_kafka = "16 pass"
    settings = {"kafka.group.initial.rebalance.delay.ms": 0}

    def prepare(self):
        venvs.prepare(self)

    def run(self, floe, folder, only=()):
        command = [venvs.python(self), self.folder / "checks.py", floe.kafka]
        tests = lines.run(command, folder / "checks.log", LINE, LIMIT_SECONDS)
        return [test for test in tests if not only or test.name in only]


SUITE = AioKafka()
