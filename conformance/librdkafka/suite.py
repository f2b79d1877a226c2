"""librdkafka's own numbered tests, those that need a broker. Its whole source comes with the crate rdkafka-sys.

On Kafka 85 of the 100 numbers pass. 0077 and 0129 fail there (segment.bytes below 1 MiB is refused), some want SASL, an
authorizer or more brokers, and some measure time. Those that call Kafka's shell tools get them by `bin/`, from Maven's jars.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import time

import jars
from lines import print_test
from suite import FAIL, PASS, ROOT, SKIP, Suite, Test

CRATE = "4.10.0+2.12.1"
JOBS = 2
LIMIT_SECONDS = 300
# Some hold very many cases.
LONG_SECONDS = {"0113": 900}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Topics of three replicas, which one broker refuses.
THREE_REPLICAS = ["0098-*.cpp", "0103-*.c", "0107-*.c", "0111-*.cpp", "0126-*.c", "0142-*.c"]
MANIFEST = f"""[package]
name = "librdkafka-source"
version = "0.0.0"
edition = "2021"
[lib]
path = "lib.rs"
[dependencies]
rdkafka-sys = "={CRATE}"
[workspace]
"""


class Librdkafka(Suite):
    name = "librdkafka"
    what = f"librdkafka {CRATE.partition('+')[2]}, its own tests that need a broker"
    on_kafka = "85 of 100 numbers pass, 8 skip themselves"
    needs = {"g++": "g++", "make": "make", "cargo": "rustup"} | jars.NEEDS
    settings = {"kafka.num.partitions": 4}

    @property
    def source(self):
        return self.tools / CRATE / "librdkafka"

    @property
    def runner(self):
        return self.source / "tests" / "test-runner"

    @property
    def kafka(self):
        """What the tests call KAFKA_PATH: `bin` with Kafka's shell tools, `libs` with its jars."""
        return self.tools / "kafka"

    def prepare(self):
        if not self.kafka.exists():
            jars.copy(ROOT / "benches" / "kafka" / "pom.xml", self.kafka / "libs")
        # Anew each time: the tools' folder may be shared by work trees, of which one is gone by now.
        (self.kafka / "bin").unlink(missing_ok=True)
        (self.kafka / "bin").symlink_to(self.folder / "bin")
        if not self.runner.exists():
            self.build()

    def build(self):
        print(f"building librdkafka {CRATE}, about three minutes", flush=True)
        self.fetch()
        for pattern in THREE_REPLICAS:
            for path in (self.source / "tests").glob(pattern):
                changed = re.sub(r"(create_topic.*), 3(, 5000)?\);", r"\1, 1\2);", path.read_text())
                path.write_text(changed)
        # The crate's archive loses the permission to execute.
        modules = (self.source / "mklove" / "modules").iterdir()
        for path in [self.source / "configure", self.source / "lds-gen.py", *modules]:
            path.chmod(0o755)
        with (self.tools / "build.log").open("w") as log:
            for command in (["./configure", "--disable-gssapi"], ["make", f"-j{JOBS}", "libs"],
                            ["make", f"-j{JOBS}", "-C", "tests", "build"]):
                if subprocess.run(command, cwd=self.source, stdout=log, stderr=log).returncode != 0:
                    raise SystemExit(f"librdkafka: {' '.join(command)} failed, see {log.name}")

    def fetch(self):
        """Unpacks the crate's source with cargo's own client."""
        work = self.tools / "fetch"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (work / "Cargo.toml").write_text(MANIFEST)
        (work / "lib.rs").touch()
        subprocess.run(["cargo", "vendor", "--quiet", "--versioned-dirs", "vendored"], cwd=work, check=True,
                       stdout=subprocess.DEVNULL)
        shutil.rmtree(self.tools / CRATE, ignore_errors=True)
        (work / "vendored" / f"rdkafka-sys-{CRATE}").rename(self.tools / CRATE)
        shutil.rmtree(work)

    def run(self, floe, folder, only=()):
        config = folder / "test.conf"
        config.write_text(f"metadata.broker.list={floe.kafka}\ntest.topic.random=true\n")
        environment = os.environ | {
            "RDKAFKA_TEST_CONF": str(config), "LD_LIBRARY_PATH": "../src:../src-cpp", "BROKERS": floe.kafka,
            "KAFKA_PATH": str(self.kafka),
            "TEST_KAFKA_VERSION": "4.1.0", "TEST_SCENARIO": "default", "TEST_CONSUMER_GROUP_PROTOCOL": "classic",
        }
        names = only or [line for line in (self.folder / "numbers.txt").read_text().splitlines() if line[:1] != "#"]
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            return list(pool.map(lambda name: self.run_one(name, environment, folder), names))

    def run_one(self, name, environment, folder):
        """One name of numbers.txt, which may hold several tests: it passes where at least one did and none failed."""
        number, _, part = name.partition(":")
        limit, began = LONG_SECONDS.get(number, LIMIT_SECONDS), time.monotonic()
        log = folder / f"{re.sub('[^0-9A-Za-z]+', '-', name)}.log"
        chosen = {"TESTS": number} | ({"SUBTESTS": part} if part else {})
        with log.open("wb") as output:
            try:
                done = subprocess.run(["./test-runner", "-p1", "-L"], cwd=self.runner.parent, env=environment | chosen,
                                      stdout=output, stderr=output, stdin=subprocess.DEVNULL, timeout=limit)
                failed = None if done.returncode == 0 else f"exited with {done.returncode}"
            except subprocess.TimeoutExpired:
                failed = f"no end after {limit} s"
        test = outcome(name, part, failed, COLOUR.sub("", log.read_text(errors="replace")), time.monotonic() - began)
        print_test(test)
        return test


def outcome(name, part, failed, log, seconds):
    """The Test that a log tells of. failed: what is wrong with the process, or None."""
    if failed:
        why = re.search(r"^### Test.*\n(.*)", log, re.MULTILINE)
        return Test(name, FAIL, seconds, f"{failed}: {why[1] if why else ''}")
    passed = re.findall(r"^\| \d{4}\S* +\| +PASSED +\|", log, re.MULTILINE)
    if passed and (not part or re.search(rf"\[ .*{re.escape(part)}.*: PASS \(", log)):
        return Test(name, PASS, seconds)
    why = re.search(r"^.*(?:SKIPPING TEST|kipping test).*$", log, re.MULTILINE)
    return Test(name, SKIP, seconds, why[0] if why else "no test of that name ran")


SUITE = Librdkafka()
