"""The brokers that are measured, Floe and Apache Kafka as its peer, and the S3 store that Floe may use."""
import importlib.machinery
import importlib.util
import itertools
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import time
import urllib.request
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
JARS = ROOT / ".tools" / "kafka"
KAFKA_HEAP = "1g"
TOOL_HEAP = "512m"
READY_SECONDS = 60
READY_POLL_SECONDS = 0.005
# The longest run is one of 4 GiB at 1 MiB/s.
TOOL_SECONDS = 2 * 3600
# A broker that used less of a core than this for as long as this is idle.
IDLE_SECONDS = 1
IDLE_CORE_SHARE = 0.1
# ApiVersions, version 0, correlation id 1, no client id: the first request of every client.
FIRST_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
# How long the first members of a classic group wait for others, milliseconds; 3,000 by default.
DELAY = "group.initial.rebalance.delay.ms"


def load_script(name):
    """A script of scripts/, which has no suffix, as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


TEST_SERVERS = load_script("with-servers")


def java(heap, *arguments):
    """A Java command on Kafka's jars."""
    log = f"-Dlog4j2.configurationFile={ROOT / 'benches/kafka/log4j2.yaml'}"
    return ["java", f"-Xmx{heap}", f"-Xms{heap}", log, "-cp", f"{JARS}/*", *map(str, arguments)]


def tool(name, *arguments):
    """Runs one of Kafka's own tools and returns what it printed."""
    command = java(TOOL_HEAP, f"org.apache.kafka.tools.{name}", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{name} exited with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Broker:
    """A broker process of its own folder and address. `start` may be called again after `stop` or `kill9`."""

    # How long after a write it may begin work of its own on what was written.
    background_pause_s = 0

    def __init__(self, name, folder):
        self.name, self.folder, self.server = name, folder, None
        folder.mkdir(parents=True)

    def command(self):
        """(command, environment)"""
        raise NotImplementedError

    def start(self):
        """Starts it and returns the seconds until it answered a client."""
        command, environment = self.command()
        began = time.monotonic()
        log = self.folder / "log"
        self.server = TEST_SERVERS.Server(self.name, command, log, signal.SIGTERM, env=environment)
        while not self.answers():
            if self.server.process.poll() is not None or time.monotonic() - began > READY_SECONDS:
                raise RuntimeError(f"{self.name} did not start: {log.read_text(errors='replace')[-3000:]}")
            time.sleep(READY_POLL_SECONDS)
        return time.monotonic() - began

    def answers(self):
        host, port = self.address.split(":")
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(FIRST_REQUEST)
                return len(connection.recv(64)) > 0
        except OSError:
            return False

    def stop(self):
        if self.server:
            self.server.stop()
            self.server = None

    def kill9(self):
        self.server.process.kill()
        self.server.process.wait()
        self.server = None

    def cpu_seconds(self):
        """User and system time so far, of all its threads."""
        # The fields after the name, which may hold spaces: the third of them is field 5 of proc(5).
        fields = self.proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def settle(self):
        """Waits until it does nothing any more with what was written."""
        time.sleep(self.background_pause_s)
        deadline = time.monotonic() + TOOL_SECONDS
        before = self.cpu_seconds()
        while time.monotonic() < deadline:
            time.sleep(IDLE_SECONDS)
            now = self.cpu_seconds()
            if now - before <= IDLE_SECONDS * IDLE_CORE_SHARE:
                return
            before = now
        raise RuntimeError(f"{self.name} is still at work")

    def resident_bytes(self):
        return self.status_bytes("VmRSS")

    def peak_bytes(self):
        """The most memory since it started or since `forget_peak`."""
        return self.status_bytes("VmHWM")

    def forget_peak(self):
        pathlib.Path(f"/proc/{self.server.process.pid}/clear_refs").write_text("5")

    def status_bytes(self, field):
        line, = (line for line in self.proc("status").splitlines() if line.startswith(f"{field}:"))
        return int(line.split()[1]) * 1024

    def proc(self, name):
        return pathlib.Path(f"/proc/{self.server.process.pid}/{name}").read_text()


class Floe(Broker):
    """Floe with its defaults, on a directory unless `store` holds the environment of another store."""

    # Merges look for work every ten seconds.
    background_pause_s = 11

    def __init__(self, folder, store=None, settings=()):
        super().__init__("floe", folder)
        kafka, web = TEST_SERVERS.free_ports(2)
        self.address, self.http = f"127.0.0.1:{kafka}", f"127.0.0.1:{web}"
        self.store, self.settings = store or {}, settings

    def command(self):
        command = [os.environ["FLOE_BIN"], "serve", "--data", self.folder / "data"]
        command += ["--kafka", self.address, "--http", self.http]
        # As the peer's setting: a group of one consumer need not wait for others.
        chosen = dict(setting.split("=", 1) for setting in (f"kafka.{DELAY}=0", *self.settings))
        for setting in map("=".join, chosen.items()):
            command += ["--set", setting]
        own = {name: value for name, value in os.environ.items() if not name.startswith("FLOE_")}
        return command, own | self.store

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=READY_SECONDS) as answer:
            return answer.read().decode()

    def look(self, topic):
        """Loads the topic's table as an engine does, until it has every record; returns how often it was loaded."""
        prefix = json.loads(self.get("/iceberg/v1/config"))["overrides"]["prefix"]
        deadline = time.monotonic() + TOOL_SECONDS
        for loads in itertools.count(1):
            self.get(f"/iceberg/v1/{prefix}/namespaces/kafka/tables/{topic}")
            table, = (each for each in json.loads(self.get("/v1/tables")) if each["topic"] == topic)
            if table["lag_records"] == 0:
                return loads
            if time.monotonic() > deadline:
                raise RuntimeError(f"the table is still behind: {table}")

    def counters(self):
        """Values of /metrics by series."""
        lines = (line.rpartition(" ") for line in self.get("/metrics").splitlines() if not line.startswith("#"))
        return {series: float(value) for series, _, value in lines}


class Kafka(Broker):
    """Apache Kafka, KRaft, one node, with its defaults, so it does not wait for the disk; `properties` change them."""

    def __init__(self, folder, properties=()):
        super().__init__("kafka", folder)
        port, controller = TEST_SERVERS.free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self.properties = folder / "server.properties"
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": folder / "data",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "10",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            DELAY: "0",
            # Deleted topics must not fill the disk during the next round.
            "log.segment.delete.delay.ms": "1000",
        } | dict(properties)
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        cluster = str(uuid.uuid4())
        make = ["kafka.tools.StorageTool", "format", "-t", cluster, "--standalone", "-c", self.properties]
        subprocess.run(java(TOOL_HEAP, *make), check=True, capture_output=True)

    def command(self):
        return java(KAFKA_HEAP, "-XX:+UseG1GC", "kafka.Kafka", self.properties), dict(os.environ)


def start_s3(folder, cleanup):
    """Starts SeaweedFS; returns the environment that makes Floe use it, under a key prefix of the caller's."""
    folder.mkdir(parents=True)
    server, endpoint, _ = TEST_SERVERS.start_s3(folder)
    cleanup.callback(server.stop)

    def environment(prefix):
        return {
            "FLOE_STORE": f"s3://floe/{prefix}", "FLOE_STORE_ENDPOINT": endpoint, "FLOE_STORE_REGION": "us-east-1",
            "FLOE_STORE_ACCESS_KEY": "rigkey", "FLOE_STORE_SECRET_KEY": "rigsecret123",
            "FLOE_STORE_ALLOW_HTTP": "true", "FLOE_STORE_UNSIGNED_PAYLOAD": "true",
        }

    return environment
