"""A full disk, an object store or a metadata store that is away for a while: producers wait or are told to try again, nothing that
was acknowledged is lost, doubled or out of order, and service resumes by itself."""
import pathlib
import subprocess
import time
import urllib.parse

import pytest

import kill_rounds
from gate import Gate
from kit import S3, Floe, Postgres, create_topic, read_all

# An upload is given up within an outage, so that both are seen: producers that wait, and those that are told to try again.
# Without idempotence librdkafka may send what it has behind a batch that is to be tried again before that batch.
PRODUCERS = [("a", "once", 0), ("b", "once", 1), ("c", "once", 2), ("d", "once", 2)]
UPLOAD_TIMEOUT_MS = 3_000
OUTAGE_SECONDS = 6
RESUME_SECONDS = 30


class FullDisk:
    """A directory store and SQLite on a disk that is full for a while."""

    symptom = "the disk is full"

    def __init__(self, folder):
        library, self.flag = folder / "full_disk.so", folder / "full"
        source = pathlib.Path(__file__).with_name("full_disk.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", library, source], check=True)
        self.settings, self.environment = {}, {"LD_PRELOAD": str(library), "DISK_FULL_WHILE": str(self.flag)}

    def begin(self):
        self.flag.touch()

    def end(self):
        self.flag.unlink()


class Away:
    """A server that is behind a gate, which is closed for a while."""

    def __init__(self, gate, settings, environment):
        self.gate, self.settings, self.environment = gate, settings, environment

    def begin(self):
        self.gate.close()

    def end(self):
        self.gate.open()


class ObjectStoreAway(Away):
    symptom = "the object store keeps failing"

    def __init__(self, _):
        store = S3()
        gate = Gate(urllib.parse.urlsplit(store.endpoint).port)
        super().__init__(gate, store.settings | {"store.endpoint": gate.url("http")}, store.environment)


class MetadataStoreAway(Away):
    symptom = "the metadata store did not decide"

    def __init__(self, _):
        gate = Gate(Postgres().port)
        super().__init__(gate, Postgres(gate.port).settings, {})


def acknowledged(load):
    """How many acknowledgements all producers have noted."""
    return sum(path.read_bytes().count(b"\n") for path in load.notes.values())


def wait_for_news(load, after):
    deadline = time.monotonic() + RESUME_SECONDS
    while acknowledged(load) <= after:
        assert time.monotonic() < deadline, "nothing is acknowledged any more"
        time.sleep(0.05)


@pytest.fixture(params=[FullDisk, ObjectStoreAway, MetadataStoreAway])
def outage(request, tmp_path):
    return request.param(tmp_path)


@pytest.fixture
def floe(outage, tmp_path, request):
    broker = Floe(tmp_path, outage.settings | {"flush.upload_timeout_ms": str(UPLOAD_TIMEOUT_MS)}, outage.environment)
    request.node.floe = broker
    try:
        yield broker.start()
    finally:
        if broker.process is not None:
            broker.kill9()


def test_an_outage_loses_nothing_and_ends_by_itself(outage, floe, topic, tmp_path):
    create_topic(floe, topic, kill_rounds.PARTITIONS)
    load = kill_rounds.Load(floe, topic, tmp_path, PRODUCERS)
    try:
        load.wait_until_all_have_begun()
        outage.begin()
        # What was on its way when it began may still be acknowledged.
        time.sleep(1)
        before = acknowledged(load)
        time.sleep(OUTAGE_SECONDS)
        assert acknowledged(load) == before, "something is acknowledged without its store"
        assert floe.is_ready() and floe.process.poll() is None
        outage.end()
        wait_for_news(load, before)
        told = load.finish()
    finally:
        load.kill()
    assert outage.symptom in floe.log.read_text(errors="replace"), "the log says what is wrong"
    kill_rounds.check_log(read_all(floe, topic), told, PRODUCERS)
    floe.stop()
