"""What the end-to-end tests share: a Floe of their own, and the clients' helpers.

Every wait has a deadline; nothing here is tried again in silence.
"""
import http.client
import importlib.util
import os
import pathlib
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

import confluent_kafka
import duckdb
import pyarrow.fs
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from pyiceberg.catalog import load_catalog

from gate import free_ports

START_SECONDS = 30
STOP_SECONDS = 30
CLIENT_SECONDS = 60
READY_POLL_SECONDS = 0.02
# librdkafka reports errors by callback and exception; its log of every refused connection only hides them.
QUIET = {"log_level": 0}
LOG_TAIL_BYTES = 20_000


class Floe:
    """One broker on a folder of its own. Its addresses stay the same over restarts.

    kafka, http: `HOST:PORT` of the Kafka protocol and of HTTP; data: its folder; log: what it printed, all starts together.
    settings: by their names, for --set; environment: variables for what may not stand on a command line; wrapper: a command
    that runs the broker's.
    """

    def __init__(self, folder, settings=None, environment=None, wrapper=()):
        self.settings, self.environment, self.wrapper = settings or {}, environment or {}, wrapper
        kafka, web = free_ports(2)
        self.kafka, self.http = f"127.0.0.1:{kafka}", f"127.0.0.1:{web}"
        self.data, self.log = folder / "data", folder / "floe.log"
        self.process = None

    def start(self):
        """Starts the broker and returns when it is ready."""
        assert self.process is None, "floe runs already"
        binary = os.environ["FLOE_BIN"]
        command = [*self.wrapper, binary, "serve", "--data", str(self.data), "--kafka", self.kafka, "--http", self.http]
        command += [word for name, value in self.settings.items() for word in ("--set", f"{name}={value}")]
        # The tests' own settings are not the broker's, which refuses variables of its prefix that it does not know.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FLOE_")} | self.environment
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            status = self.process.poll()
            assert status is None, f"floe exited with {status} before it was ready"
            assert time.monotonic() < deadline, f"floe was not ready after {START_SECONDS} s"
            time.sleep(READY_POLL_SECONDS)
        return self

    def is_ready(self):
        try:
            return self.get("/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path):
        """(status, text) of a GET."""
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def stop(self):
        """SIGTERM: a broker that is asked to stop does so in time and exits with 0."""
        process, self.process = self.process, None
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"floe did not stop within {STOP_SECONDS} s of SIGTERM") from None
        assert status == 0, f"floe exited with {status} after SIGTERM"

    def kill9(self):
        """SIGKILL: nothing is told, nothing is flushed."""
        process, self.process = self.process, None
        process.kill()
        assert process.wait() == -signal.SIGKILL, "floe was gone before it was killed"

    def restart(self):
        """Stops the broker, if it runs, and starts it again on the same folder and addresses."""
        if self.process is not None:
            self.stop()
        return self.start()

    def log_tail(self):
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace") if self.log.exists() else ""


def floe_command(*arguments):
    """A finished `floe` command: text out. Its exit status is the caller's to judge."""
    command = [os.environ["FLOE_BIN"], *map(str, arguments)]
    # As the broker's: the tests' own settings are not Floe's, which refuses variables that it does not know.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLOE_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_SECONDS, env=environment)


def run_kcat(floe, *arguments, stdin=b""):
    """kcat's finished process: bytes in, bytes out. Its exit status is the caller's to judge."""
    command = ["kcat", "-b", floe.kafka, *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=CLIENT_SECONDS)


def kcat(floe, *arguments, stdin=b""):
    """What kcat printed; fails where it did."""
    done = run_kcat(floe, *arguments, stdin=stdin)
    assert done.returncode == 0, f"kcat {arguments} exited with {done.returncode}: {done.stderr.decode()}"
    return done.stdout


def producer(floe, **settings):
    """confluent-kafka's producer: acks=all, idempotent."""
    return confluent_kafka.Producer({
        "bootstrap.servers": floe.kafka, "acks": "all", "enable.idempotence": True, "linger.ms": 5,
    } | QUIET | settings)


def consumer(floe, group, **settings):
    """confluent-kafka's consumer: from the earliest record, commits only when told to."""
    return confluent_kafka.Consumer({
        "bootstrap.servers": floe.kafka, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "session.timeout.ms": 10_000,
    } | QUIET | settings)


def create_topic(floe, topic, partitions):
    """Creates a topic and returns the admin client that did."""
    admin = AdminClient({"bootstrap.servers": floe.kafka} | QUIET)
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1)
    admin.create_topics([new], request_timeout=CLIENT_SECONDS)[topic].result(CLIENT_SECONDS)
    return admin


def alter_config(floe, topic, name, value=None):
    """Sets a topic's config, or takes it away."""
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=kind)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": floe.kafka} | QUIET)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(CLIENT_SECONDS)


def send(floe, topic, values, **message):
    """Produces values to a topic and returns the acknowledged messages in the order of their acknowledgement."""
    acknowledged, errors = [], []

    def on_delivery(error, record):
        errors.append(error) if error else acknowledged.append(record)

    client = producer(floe)
    for value in values:
        client.produce(topic, value=value, on_delivery=on_delivery, **message)
    assert client.flush(CLIENT_SECONDS) == 0, "records are not acknowledged in time"
    assert not errors, errors
    return acknowledged


def poll(client, count):
    """The next `count` records of a consumer; fails where they do not come."""
    records, deadline = [], time.monotonic() + CLIENT_SECONDS
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        record = client.poll(1.0)
        if record is None:
            continue
        assert record.error() is None, record.error()
        records.append(record)
    return records


def read_all(floe, topic):
    """All records of a topic by partition, from earliest to the high watermark, by assignment and without a group."""
    client = consumer(floe, f"reader-of-{topic}")
    try:
        metadata = client.list_topics(topic, timeout=CLIENT_SECONDS).topics[topic]
        assert metadata.error is None, metadata.error
        records = {}
        for partition in metadata.partitions:
            place = confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)
            low, high = client.get_watermark_offsets(place, timeout=CLIENT_SECONDS, cached=False)
            client.assign([place])
            records[partition] = poll(client, high - low)
        return records
    finally:
        client.close()


class S3:
    """The S3 store of scripts/with-servers. settings, environment: a Floe's, for a key prefix of its own."""

    key, secret, region, bucket = "rigkey", "rigsecret123", "us-east-1", "floe"

    def __init__(self):
        assert "FLOE_TEST_S3" in os.environ, "no FLOE_TEST_S3: run the tests by scripts/with-servers scripts/e2e"
        self.endpoint = os.environ["FLOE_TEST_S3"]
        self.settings = {
            "store.url": f"s3://{self.bucket}/{uuid.uuid4().hex}", "store.endpoint": self.endpoint,
            "store.region": self.region, "store.allow_http": "true",
        }
        self.environment = {"FLOE_STORE_ACCESS_KEY": self.key, "FLOE_STORE_SECRET_KEY": self.secret}

    def secret_for(self, session):
        """Tells a DuckDB session where the store is."""
        address = self.endpoint.partition("://")[2]
        session.execute(f"""CREATE SECRET (TYPE s3, KEY_ID '{self.key}', SECRET '{self.secret}', REGION '{self.region}',
            ENDPOINT '{address}', URL_STYLE 'path', USE_SSL false)""")

    def pyiceberg_properties(self):
        """Tells a catalog of PyIceberg where the store is."""
        return {"s3.endpoint": self.endpoint, "s3.access-key-id": self.key, "s3.secret-access-key": self.secret,
                "s3.region": self.region}

    def file_system(self):
        """The store as a file system of pyarrow."""
        return pyarrow.fs.S3FileSystem(access_key=self.key, secret_key=self.secret, region=self.region,
                                       endpoint_override=self.endpoint)


class Postgres:
    """The PostgreSQL of scripts/with-servers. settings: a Floe's, for a schema of its own; port: another one that leads there."""

    def __init__(self, port=None):
        assert "FLOE_TEST_POSTGRES" in os.environ, "no FLOE_TEST_POSTGRES: run the tests by scripts/with-servers scripts/e2e"
        address = urllib.parse.urlsplit(os.environ["FLOE_TEST_POSTGRES"])
        self.port = port or address.port
        url = f"postgres://{address.username}@{address.hostname}:{self.port}{address.path}"
        self.settings = {"metadata.url": url, "metadata.schema": f"t_{uuid.uuid4().hex}"}


class Servers(S3):
    """As an installation on servers has it: S3 and PostgreSQL, and nothing in the broker's folder."""

    def __init__(self):
        super().__init__()
        self.settings |= Postgres().settings


class Catalog:
    """The Iceberg REST catalog of scripts/with-servers, which is SeaweedFS', for tables whose files are in `store`."""

    warehouse = "s3://warehouse"

    def __init__(self, store):
        assert "FLOE_TEST_CATALOG" in os.environ, "no FLOE_TEST_CATALOG: run the tests by scripts/with-servers scripts/e2e"
        self.uri, self.store = os.environ["FLOE_TEST_CATALOG"], store
        self.settings = store.settings | {
            "iceberg.catalog.uri": self.uri, "iceberg.catalog.warehouse": self.warehouse, "iceberg.catalog.allow_http": "true",
            # A table bucket takes no table that lies elsewhere.
            "iceberg.catalog.set_location": "false",
        }

    def pyiceberg(self):
        credential = f"{self.store.key}:{self.store.secret}"
        return load_catalog("lake", type="rest", uri=self.uri, warehouse=self.warehouse, credential=credential,
                            **self.store.pyiceberg_properties())

    def duckdb(self):
        access = f"CLIENT_ID '{self.store.key}', CLIENT_SECRET '{self.store.secret}', OAUTH2_SERVER_URI '{self.uri}/v1/oauth/tokens'"
        session = duckdb_session()
        self.store.secret_for(session)
        session.execute(f"""ATTACH '{self.warehouse}' AS lake (TYPE ICEBERG, ENDPOINT '{self.uri}', {access},
            ACCESS_DELEGATION_MODE 'none')""")
        return session


def duckdb_on(floe, access="AUTHORIZATION_TYPE 'none'", delegation="none"):
    """DuckDB with Floe's catalog attached as `lake`."""
    session = duckdb_session()
    session.execute(f"""ATTACH '' AS lake (TYPE ICEBERG, ENDPOINT 'http://{floe.http}/iceberg',
        {access}, ACCESS_DELEGATION_MODE '{delegation}')""")
    return session


def duckdb_session():
    """DuckDB with what it needs of Iceberg. The extensions come with the packages; nothing is downloaded."""
    extensions = pathlib.Path(os.environ["FLOE_DUCKDB_EXTENSIONS"])
    session = duckdb.connect(config={
        "allow_unsigned_extensions": "true", "extension_directory": str(extensions), "autoinstall_known_extensions": "false",
    })
    for name in ("avro", "httpfs", "iceberg"):
        package = pathlib.Path(importlib.util.find_spec(f"duckdb_extension_{name}").origin).parent
        session.execute(f"INSTALL '{next(package.glob(f'extensions/*/{name}.duckdb_extension'))}'")
        session.execute(f"LOAD {name}")
    return session
