"""kafkajs: the client of Node that most people have; checks of ours (smoke.mjs)."""
import shutil
import subprocess

import lines
from suite import Suite

LIMIT_SECONDS = 900
LINE = r"(?P<outcome>PASS|FAIL) (?P<name>.+?) \| (?P<seconds>[\d.]+) (?P<note>.*)$"


class KafkaJs(Suite):
    name = "kafkajs"
    what = "kafkajs 2.2.4, checks of ours"
    on_kafka = "23 pass"
    needs = {"node": "nodejs", "npm": "npm"}
    settings = {"kafka.group.initial.rebalance.delay.ms": 0}

    def prepare(self):
        kept = self.tools / "package-lock.json"
        wanted = self.folder / "package-lock.json"
        if kept.exists() and kept.read_text() == wanted.read_text() and (self.tools / "node_modules").exists():
            return
        self.tools.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.folder / "package.json", self.tools)
        shutil.copy(wanted, kept)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--silent"], cwd=self.tools, check=True)

    def run(self, floe, folder, only=()):
        # The checks build on each other, so all of them run, whatever is asked for.
        command = ["node", self.folder / "smoke.mjs", self.tools, floe.kafka]
        tests = lines.run(command, folder / "smoke.log", LINE, LIMIT_SECONDS)
        return [test for test in tests if not only or test.name in only]


SUITE = KafkaJs()
