"""Trino beside the other engines: a server of its own with Floe's catalog, asked over its protocol.

Trino 483 wants a Java 25, which FLOE_JAVA_25 names (a folder as JAVA_HOME is); without it Trino is not asked. Its jars come by
Maven. In its Iceberg plug-in's jar the file that names the plug-in is missing, and its launcher is no package: both are made here.
"""
import base64
import datetime
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
import zipfile

import jars
from gate import free_ports

from engines.spelling import spell

JAVA_HOME = os.environ.get("FLOE_JAVA_25", "")
START_SECONDS = 240
ANSWER_SECONDS = 90
POLL_SECONDS = 0.2
HEADERS = {"X-Trino-User": "floe", "X-Trino-Time-Zone": "UTC", "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}


def prepare(suite):
    """Gets the jars, once."""
    place = suite.tools / "trino"
    done = place / "done"
    if not JAVA_HOME or done.exists():
        return
    print("engines: getting Trino", flush=True)
    jars.copy(suite.folder / "trino-server.xml", place / "lib")
    jars.copy(suite.folder / "trino-iceberg.xml", place / "plugin" / "iceberg")
    with zipfile.ZipFile(place / "plugin" / "iceberg" / "named.jar", "w") as jar:
        jar.writestr("META-INF/services/io.trino.spi.Plugin", "io.trino.plugin.iceberg.IcebergPlugin\n")
    done.touch()


class Trino:
    """A running server; ask() is as the other sessions' is."""

    def __init__(self, suite, environment, folder):
        place = suite.tools / "trino"
        (port,) = free_ports(1)
        self.address = f"http://127.0.0.1:{port}"
        config = {
            "coordinator": "true", "node-scheduler.include-coordinator": "true", "node.environment": "floe",
            "node.internal-address": "127.0.0.1", "http-server.http.port": port, "discovery.uri": self.address,
            "plugin.dir": place / "plugin", "catalog.management": "dynamic", "catalog.store": "memory",
            "query.max-memory-per-node": "300MB", "memory.heap-headroom-per-node": "200MB", "web-ui.enabled": "false"}
        (folder / "config.properties").write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        command = [f"{JAVA_HOME}/bin/java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "--enable-native-access=ALL-UNNAMED",
                   "--sun-misc-unsafe-memory-access=allow", "-Djdk.attach.allowAttachSelf=true",
                   f"-Dconfig={folder / 'config.properties'}", "-cp", f"{place / 'lib'}/*", suite.folder / "TrinoServer.java"]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait()
        self.attach(environment)

    def wait(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.call(f"{self.address}/v1/info").get("starting") is False:
                    return
            except OSError:
                pass
            time.sleep(POLL_SECONDS)
        self.close()
        raise AssertionError("Trino did not start")

    def attach(self, environment):
        properties = {
            "iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": environment["CATALOG_URI"], "fs.s3.enabled": "true",
            "s3.endpoint": environment["S3_ENDPOINT"], "s3.region": environment["S3_REGION"], "s3.path-style-access": "true",
            "s3.aws-access-key": environment["S3_ACCESS_KEY"], "s3.aws-secret-key": environment["S3_SECRET_KEY"]}
        listed = ", ".join(f"\"{name}\" = '{value}'" for name, value in properties.items())
        self.sql(f"CREATE CATALOG lake USING iceberg WITH ({listed})")

    def call(self, url, statement=None):
        request = urllib.request.Request(url, data=statement, headers=HEADERS)
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                # It asks to be asked again: part of its protocol.
                if error.code not in (502, 503, 504) or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def sql(self, statement):
        answer, rows = self.call(f"{self.address}/v1/statement", statement.encode()), []
        while True:
            assert "error" not in answer, answer["error"]["message"]
            columns = [(column["name"], column["typeSignature"]) for column in answer.get("columns") or []]
            rows += [{name: value_of(kind, value) for (name, kind), value in zip(columns, row)} for row in answer.get("data") or []]
            if "nextUri" not in answer:
                return rows
            answer = self.call(answer["nextUri"])

    def ask(self, table, columns, where):
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        # Its names are all in lower case.
        rows = self.sql(f"SELECT {names} FROM lake.kafka.{table}" + (f" WHERE {where}" if where else ""))
        return [spell(dict(zip(columns, row.values(), strict=True))) for row in rows]

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def value_of(kind, value):
    """A value of Trino's JSON, by its type."""
    name, inner = kind["rawType"], [argument["value"] for argument in kind["arguments"]]
    if value is None:
        return None
    if name == "row":
        return {field["fieldName"]["name"]: value_of(field["typeSignature"], member) for field, member in zip(inner, value)}
    if name == "array":
        return [value_of(inner[0], item) for item in value]
    if name == "varbinary":
        return base64.b64decode(value)
    if name == "double":
        return float(value)
    if name == "timestamp with time zone":
        return datetime.datetime.fromisoformat(value.removesuffix(" UTC")).replace(tzinfo=datetime.UTC)
    return value
