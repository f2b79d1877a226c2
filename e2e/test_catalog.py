"""The catalog as engines use it: tokens, tables that others make and change, keys that may only read, a store that was moved.
PyIceberg and DuckDB write; Floe goes on beside them."""
import contextlib
import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pyarrow
import pyarrow.fs
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchTableError, UnauthorizedError
from pyiceberg.types import DateType, LongType

from kit import CLIENT_SECONDS, Floe, S3, duckdb_on, floe_command, send

WRITABLE = {"iceberg.external_write": "true"}


def catalog_of(floe, **properties):
    return load_catalog("floe", type="rest", uri=f"http://{floe.http}/iceberg", **properties)


@contextlib.contextmanager
def running(tmp_path, request, settings, environment=None):
    tmp_path.mkdir(exist_ok=True)
    broker = Floe(tmp_path, settings, environment)
    request.node.floe = broker
    broker.start()
    try:
        yield broker
    finally:
        if broker.process is not None:
            broker.stop()


@pytest.fixture
def writable(tmp_path, request):
    with running(tmp_path, request, WRITABLE) as broker:
        yield broker


def records(floe, topic, *values):
    send(floe, topic, [json.dumps(value) for value in values])


def columns(floe, topic, *names):
    """The topic's rows as PyIceberg and DuckDB read them, both the same: those columns, in the order of offsets."""
    rows = catalog_of(floe).load_table(("kafka", topic)).scan().to_arrow().sort_by("_kafka_offset")
    read = [tuple(row[name] for name in names) for row in rows.to_pylist()]
    listed = ", ".join(f'"{name}"' for name in names)
    with duckdb_on(floe) as lake:
        assert lake.sql(f"SELECT {listed} FROM lake.kafka.{topic} ORDER BY _kafka_offset").fetchall() == read
    return read


def state(floe, topic):
    status, text = floe.get("/v1/tables")
    assert status == 200
    (table,) = [table for table in json.loads(text) if table["topic"] == topic]
    return table["state"], table["reason"]


def test_a_column_that_pyiceberg_renames_is_bound_by_its_id(writable, topic):
    records(writable, topic, {"a": 1, "b": "x"})
    table = catalog_of(writable).load_table(("kafka", topic))
    with table.update_schema() as update:
        update.rename_column("a", "amount")
    records(writable, topic, {"a": 2, "b": "y"}, {"a": 3, "amount": True})
    assert columns(writable, topic, "amount", "b", "amount__2") == [(1, "x", None), (2, "y", None), (3, None, True)]
    assert state(writable, topic) == ("running", None)


def test_a_column_that_pyiceberg_drops_is_not_made_again(writable, topic):
    records(writable, topic, {"a": 1, "b": "x"})
    table = catalog_of(writable).load_table(("kafka", topic))
    with table.update_schema() as update:
        update.delete_column("a")
        update.delete_column("_kafka_headers")
    records(writable, topic, {"a": 2, "b": "y"})
    names = catalog_of(writable).load_table(("kafka", topic)).schema().column_names
    assert "a" not in names and "_kafka_headers" not in names
    assert columns(writable, topic, "b") == [("x",), ("y",)]


def test_columns_that_pyiceberg_adds_and_widens_stay(writable, topic):
    records(writable, topic, {"a": 1})
    table = catalog_of(writable).load_table(("kafka", topic))
    with table.update_schema() as update:
        update.add_column("day", DateType())
        update.move_first("day")
        update.update_column("_kafka_partition", LongType())
    records(writable, topic, {"a": 2, "day": "text"})
    assert columns(writable, topic, "_kafka_partition", "day", "a", "day__2") == [(0, None, 1, None), (0, None, 2, "text")]
    schema = catalog_of(writable).load_table(("kafka", topic)).schema()
    assert schema.fields[0].name == "day"
    assert schema.find_field("_kafka_partition").field_type == LongType()


def test_a_required_column_stops_the_table_by_name_until_it_is_optional(writable, topic):
    records(writable, topic, {"a": 1})
    catalog = catalog_of(writable)
    with catalog.load_table(("kafka", topic)).update_schema(allow_incompatible_changes=True) as update:
        update.add_column("must", LongType(), required=True)
    records(writable, topic, {"a": 2})
    catalog.load_table(("kafka", topic))
    assert state(writable, topic) == ("stopped", "column must is required, and no record has it")
    with catalog.load_table(("kafka", topic)).update_schema() as update:
        update.make_column_optional("must")
    assert columns(writable, topic, "a", "must") == [(1, None), (2, None)]
    assert state(writable, topic) == ("running", None)


def test_duckdb_appends_and_deletes_beside_the_topic(writable, topic):
    records(writable, topic, {"a": 1}, {"a": 2})
    with duckdb_on(writable) as lake:
        lake.sql(f"INSERT INTO lake.kafka.{topic} BY NAME SELECT 0::INTEGER AS _kafka_partition, 1000000::BIGINT AS _kafka_offset, "
                 "TIMESTAMPTZ '2026-01-01 00:00:00+00' AS _kafka_timestamp, 7::BIGINT AS a")
    records(writable, topic, {"a": 3})
    assert columns(writable, topic, "a") == [(1,), (2,), (3,), (7,)]
    with duckdb_on(writable) as lake:
        lake.sql(f"DELETE FROM lake.kafka.{topic} WHERE a = 2")
    records(writable, topic, {"a": 4})
    assert columns(writable, topic, "a") == [(1,), (3,), (4,), (7,)]
    assert state(writable, topic) == ("running", None)


def test_a_commit_on_an_old_version_is_made_again_on_the_newest(writable):
    catalog = catalog_of(writable)
    catalog.create_namespace("lake")
    rows = pyarrow.table({"id": [1, 2]})
    catalog.create_table(("lake", "made"), schema=rows.schema)
    first, second = (catalog.load_table(("lake", "made")) for _ in range(2))
    first.append(rows)
    second.append(rows)
    assert catalog.load_table(("lake", "made")).scan().to_arrow().num_rows == 4


def test_what_is_floes_is_refused(writable, topic):
    records(writable, topic, {"a": 1})
    table = catalog_of(writable).load_table(("kafka", topic))
    for key in ("floe.topic-id", "write.data.path"):
        with pytest.raises(Exception, match="floe.topic-id is Floe's|leaves the table's folder"):
            with table.transaction() as transaction:
                transaction.set_properties({key: "elsewhere"})
    assert state(writable, topic) == ("running", None)


def test_pyiceberg_makes_tables_of_its_own(writable, topic):
    catalog = catalog_of(writable)
    catalog.create_namespace("lake", {"owner": "me"})
    assert catalog.load_namespace_properties("lake") == {"owner": "me"}
    summary = catalog.update_namespace_properties("lake", removals={"owner"}, updates={"by": "us"})
    assert (summary.removed, summary.updated) == (["owner"], ["by"])
    rows = pyarrow.table({"id": [1, 2], "text": ["a", "b"]})
    table = catalog.create_table(("lake", "made"), schema=rows.schema)
    table.append(rows)
    with catalog.create_table_transaction(("lake", "staged"), schema=rows.schema) as transaction:
        transaction.append(rows)
    assert set(catalog.list_tables("lake")) == {("lake", "made"), ("lake", "staged")}
    catalog.rename_table(("lake", "made"), ("lake", "renamed"))
    with pytest.raises(NoSuchTableError):
        catalog.load_table(("lake", "made"))
    with duckdb_on(writable) as lake:
        for name in ("renamed", "staged"):
            assert lake.sql(f"SELECT * FROM lake.lake.{name} ORDER BY id").fetchall() == [(1, "a"), (2, "b")]
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace("lake")
    catalog.drop_table(("lake", "renamed"))
    catalog.purge_table(("lake", "staged"))
    catalog.drop_namespace("lake")
    assert catalog.list_namespaces() == [("kafka",)]
    writable.restart()
    assert catalog.list_namespaces() == [("kafka",)]


def test_duckdb_makes_and_changes_tables(tmp_path, request, topic):
    """On S3: where a table has no folder yet, DuckDB makes none."""
    store = S3()
    with running(tmp_path, request, store.settings | WRITABLE, store.environment) as floe:
        records(floe, topic, {"a": 1}, {"a": 2})
        with duckdb_on(floe) as lake:
            store.secret_for(lake)
            lake.sql("CREATE SCHEMA lake.duck")
            lake.sql("CREATE TABLE lake.duck.copied AS SELECT a, _kafka_offset AS at FROM lake.kafka." + topic)
            lake.sql("INSERT INTO lake.duck.copied VALUES (7, 100)")
            lake.sql("CREATE TABLE lake.duck.empty (id BIGINT)")
            assert lake.sql("SELECT a FROM lake.duck.copied ORDER BY a").fetchall() == [(1,), (2,), (7,)]
            lake.sql(f"DELETE FROM lake.kafka.{topic} WHERE a = 1")
            records(floe, topic, {"a": 3})
            assert lake.sql(f"SELECT a FROM lake.kafka.{topic} ORDER BY a").fetchall() == [(2,), (3,)]
            lake.sql("DROP TABLE lake.duck.copied")
            lake.sql("DROP TABLE lake.duck.empty")
            lake.sql("DROP SCHEMA lake.duck")
        assert state(floe, topic) == ("running", None)
        assert catalog_of(floe).list_namespaces() == [("kafka",)]


def test_a_topics_table_that_is_dropped_is_not_made_again(writable, topic):
    records(writable, topic, {"a": 1})
    catalog = catalog_of(writable)
    catalog.load_table(("kafka", topic))
    catalog.drop_table(("kafka", topic))
    records(writable, topic, {"a": 2})
    time.sleep(3)
    assert not catalog.table_exists(("kafka", topic))
    assert ("kafka", topic) not in catalog.list_tables("kafka")
    writable.restart()
    with pytest.raises(NoSuchTableError):
        catalog.load_table(("kafka", topic))


def test_a_catalog_that_is_for_reading_says_so(floe, topic):
    records(floe, topic, {"a": 1})
    catalog = catalog_of(floe)
    table = catalog.load_table(("kafka", topic))
    # The client reads the list of endpoints; one that does not is told which setting it would need.
    with pytest.raises(Exception, match="does not support endpoint"):
        with table.update_schema() as update:
            update.add_column("mine", LongType())
    request = urllib.request.Request(f"http://{floe.http}/iceberg/v1/floe/namespaces/kafka/tables/{topic}", method="DELETE")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 403 and b"iceberg.external_write" in refused.value.read()
    assert catalog.table_exists(("kafka", topic))


def test_engines_get_tokens_and_new_ones_when_they_expire(tmp_path, request, topic):
    settings = {"iceberg.client_id": "engine", "iceberg.token_lifetime_s": "3"}
    with running(tmp_path, request, settings, {"FLOE_ICEBERG_CLIENT_SECRET": "s3cret"}) as floe:
        records(floe, topic, {"a": 1})
        with pytest.raises(UnauthorizedError):
            catalog_of(floe).list_tables("kafka")
        with pytest.raises(Exception, match="invalid_client|401"):
            catalog_of(floe, credential="engine:wrong").list_tables("kafka")
        tokens = f"http://{floe.http}/iceberg/v1/oauth/tokens"
        catalog = catalog_of(floe, credential="engine:s3cret", **{"oauth2-server-uri": tokens})
        assert catalog.load_table(("kafka", topic)).scan().to_arrow().num_rows == 1
        with duckdb_on(floe, f"CLIENT_ID 'engine', CLIENT_SECRET 's3cret', OAUTH2_SERVER_URI '{tokens}'") as lake:
            assert lake.sql(f"SELECT count(*) FROM lake.kafka.{topic}").fetchone() == (1,)
            records(floe, topic, {"a": 2})
            time.sleep(4)
            assert catalog.load_table(("kafka", topic)).scan().to_arrow().num_rows == 2
            assert lake.sql(f"SELECT count(*) FROM lake.kafka.{topic}").fetchone() == (2,)
        floe.restart()
        token = catalog_of(floe, credential="engine:s3cret", **{"oauth2-server-uri": tokens})
        assert token.load_table(("kafka", topic)).scan().to_arrow().num_rows == 2


def iam(store, action, **parameters):
    """A call of the store's IAM, by its admin: the answer's text."""
    form = urllib.parse.urlencode({"Action": action, "Version": "2010-05-08"} | parameters)
    signed = ["--aws-sigv4", f"aws:amz:{store.region}:iam", "--user", f"{store.key}:{store.secret}"]
    call = ["curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "20", *signed, "--data", form, store.endpoint]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout


def keys_for(store, user, actions, folder):
    """A new pair of keys that may do these actions on all objects of a folder."""
    iam(store, "CreateUser", UserName=user)
    statement = {"Effect": "Allow", "Action": actions, "Resource": [f"arn:aws:s3:::{folder}/*"]}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam(store, "PutUserPolicy", UserName=user, PolicyName=user, PolicyDocument=policy)
    made = iam(store, "CreateAccessKey", UserName=user)
    return [re.search(f"<{name}>([^<]+)<", made)[1] for name in ("AccessKeyId", "SecretAccessKey")]


def with_keys(store, key, secret):
    return store.environment | {"FLOE_ICEBERG_READ_ACCESS_KEY": key, "FLOE_ICEBERG_READ_SECRET_KEY": secret}


def test_keys_that_are_given_can_read_tables_and_nothing_else(tmp_path, request, topic):
    store = S3()
    with running(tmp_path, request, store.settings, store.environment) as floe:
        records(floe, topic, {"a": 1})
        location = catalog_of(floe).load_table(("kafka", topic)).location().removeprefix("s3://")
    cluster, inside = location.split("/tables/")
    everything = store.file_system()
    (segment, *_) = [
        found.path for found in everything.get_file_info(pyarrow.fs.FileSelector(cluster, recursive=True))
        if found.path.endswith(".kfs")
    ]
    for actions, folder, what in (
            (["s3:GetObject", "s3:PutObject"], f"{cluster}/tables", "can write"),
            (["s3:GetObject"], cluster, "which is no table's"),
            (["s3:GetObject"], f"{cluster}/wal", "cannot read")):
        greedy = Floe(tmp_path, store.settings, with_keys(store, *keys_for(store, f"u{time.time_ns()}", actions, folder)))
        with pytest.raises(AssertionError, match="exited with"):
            greedy.start()
        assert what in greedy.log_tail(), greedy.log_tail()
    key, secret = keys_for(store, f"u{time.time_ns()}", ["s3:GetObject"], f"{cluster}/tables")
    with running(tmp_path, request, store.settings, with_keys(store, key, secret)) as floe:
        records(floe, topic, {"a": 2})
        # No engine is told anything of the store but by the catalog.
        table = catalog_of(floe).load_table(("kafka", topic))
        assert sorted(table.scan().to_arrow().column("a").to_pylist()) == [1, 2]
        with duckdb_on(floe, delegation="vended_credentials") as lake:
            assert lake.sql(f"SELECT sum(a) FROM lake.kafka.{topic}").fetchone() == (3,)
        given = table.io.properties
    assert (given["s3.access-key-id"], given["s3.secret-access-key"]) == (key, secret)
    reader = pyarrow.fs.S3FileSystem(access_key=given["s3.access-key-id"], secret_key=given["s3.secret-access-key"],
                                     region=store.region, endpoint_override=given["s3.endpoint"])
    everything.open_input_file(segment).read()
    metadata = table.metadata_location.removeprefix("s3://")
    reader.open_input_file(metadata).read()
    forbidden = {
        "read a segment": lambda: reader.open_input_file(segment).read(),
        "write beside a table": lambda: write(reader, f"{cluster}/tables/{inside}/data/mine.parquet"),
        "write over a segment": lambda: write(reader, segment),
        "delete a file": lambda: reader.delete_file(metadata),
    }
    for what, attempt in forbidden.items():
        with pytest.raises(OSError):
            attempt()
            pytest.fail(what)
    assert everything.get_file_info(metadata).is_file and everything.get_file_info(segment).is_file


def write(file_system, path):
    with file_system.open_output_stream(path) as stream:
        stream.write(b"mine")


def test_a_moved_folder_is_refused_until_its_tables_are_relocated(tmp_path, request, topic):
    with running(tmp_path / "old", request, {}) as floe:
        for number in range(3):
            records(floe, topic, {"a": number})
            catalog_of(floe).load_table(("kafka", topic))
    (tmp_path / "old" / "data").rename(tmp_path / "new")
    moved = Floe(tmp_path)
    moved.data = tmp_path / "new"
    request.node.floe = moved
    with pytest.raises(AssertionError, match="exited with 2|exited with 1"):
        moved.start()
    moved.process = None
    said = moved.log_tail()
    assert "floe tables relocate" in said and str(tmp_path / "old") in said and str(moved.data) in said
    done = floe_command("tables", "relocate", "--data", moved.data)
    assert done.returncode == 0 and done.stdout.startswith("1 tables are at home here now"), done
    moved.start()
    try:
        records(moved, topic, {"a": 3})
        assert columns(moved, topic, "a") == [(0,), (1,), (2,), (3,)]
        assert state(moved, topic) == ("running", None)
        table = catalog_of(moved).load_table(("kafka", topic))
        oldest = min(table.snapshots(), key=lambda snapshot: snapshot.sequence_number)
        assert table.scan(snapshot_id=oldest.snapshot_id).to_arrow().num_rows == 1, "what was before is there too"
    finally:
        moved.stop()
