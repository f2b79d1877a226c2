"""A table's metadata over many versions, by readers that others wrote: Floe encodes it in runs of 32 snapshots that versions
share (iceberg-bridge/src/commit/encoded), and glues them, compressed, into one file."""
import json
import pathlib
import time
import zlib

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable
from pyiceberg.types import StringType

from kit import Floe, duckdb_on, send

# Of all, the oldest go beyond this, fifty at once.
SNAPSHOTS_MAX = 70
SETTINGS = {"iceberg.external_write": "true", "iceberg.snapshots_max": str(SNAPSHOTS_MAX)}
# Sequence numbers of a run: so the third one is begun, and two are whole.
THIRD_RUN = 64
# Records, and looks, after which a record has a new key, and PyIceberg adds a column.
NEW_KEY_AFTER, NEW_COLUMN_AFTER = 20, 40
AFTER_EXPIRY = 5
# A table commits once a second at most.
LOOKS_SECONDS = 150
POINTS_IN_TIME = 4


@pytest.fixture
def floe(tmp_path, request):
    """A broker that lets engines write, and keeps few snapshots."""
    broker = Floe(tmp_path, SETTINGS)
    request.node.floe = broker
    try:
        yield broker.start()
    finally:
        if broker.process is not None:
            broker.stop()


class Looks:
    """A topic that gets a record at a time, and a table that is looked at after each."""

    def __init__(self, floe, topic):
        self.floe, self.topic = floe, topic
        self.catalog = load_catalog("floe", type="rest", uri=f"http://{floe.http}/iceberg")
        self.count, self.rows = 0, {}
        self.deadline = time.monotonic() + LOOKS_SECONDS

    def look(self):
        """The table with one record more."""
        assert time.monotonic() < self.deadline, f"{self.count} looks took too long"
        value = {"n": self.count} | ({"half": self.count / 2} if self.count >= NEW_KEY_AFTER else {})
        send(self.floe, self.topic, [json.dumps(value)])
        self.count += 1
        table = self.catalog.load_table(("kafka", self.topic))
        self.rows[table.metadata.current_snapshot_id] = self.count
        if self.count == NEW_COLUMN_AFTER:
            with table.update_schema() as update:
                update.add_column("note", StringType())
        return table.metadata

    def check(self):
        """The newest version, as it is answered, as it is on the store, and as it was at some points in time."""
        table = self.catalog.load_table(("kafka", self.topic))
        metadata, location = table.metadata, table.metadata_location
        path = location.removeprefix("file://")
        assert StaticTable.from_metadata(location).metadata == metadata
        check_lists(only_member(pathlib.Path(path).read_bytes()), metadata)
        known = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id in self.rows]
        asked = [known[len(known) * point // POINTS_IN_TIME] for point in range(POINTS_IN_TIME)] + known[-1:]
        file = f"'{path}', metadata_compression_codec='gzip'"
        with duckdb_on(self.floe) as lake:
            ids = lake.sql(f"SELECT snapshot_id FROM iceberg_snapshots({file}) ORDER BY sequence_number").fetchall()
            assert [id for id, in ids] == [snapshot.snapshot_id for snapshot in metadata.snapshots]
            for id in asked:
                numbers = list(range(self.rows[id]))
                assert sorted(table.scan(snapshot_id=id, selected_fields=("n",)).to_arrow()["n"].to_pylist()) == numbers
                sources = f"iceberg_scan({file}, snapshot_from_id={id})", f"lake.kafka.{self.topic} AT (VERSION => {id})"
                for source in sources:
                    read = lake.sql(f"SELECT n FROM {source} ORDER BY n").fetchall()
                    assert [n for n, in read] == numbers, source
            sums = lake.sql(f"SELECT count(*), sum(half), count(note) FROM lake.kafka.{self.topic}").fetchone()
        assert sums == (self.count, sum(n / 2 for n in range(NEW_KEY_AFTER, self.count)), 0)


def only_member(file):
    """The JSON of a gzip file that has one member and nothing behind it."""
    reader = zlib.decompressobj(wbits=31)
    text = reader.decompress(file)
    assert reader.eof and reader.unused_data == b""
    return json.loads(text, object_pairs_hook=without_doubles)


def without_doubles(members):
    assert len(dict(members)) == len(members), members
    return dict(members)


def check_lists(written, metadata):
    """No entry is there twice, or out of its order; nothing names what is not there."""
    numbers = [snapshot["sequence-number"] for snapshot in written["snapshots"]]
    assert numbers == sorted(set(numbers)) and numbers[-1] == written["last-sequence-number"]
    ids = [snapshot["snapshot-id"] for snapshot in written["snapshots"]]
    # All are main's: each became the current one in its turn, and has the one before for its parent.
    assert [entry["snapshot-id"] for entry in written["snapshot-log"]] == ids
    assert [snapshot["parent-snapshot-id"] for snapshot in written["snapshots"][1:]] == ids[:-1]
    for snapshot, entry in zip(written["snapshots"], written["snapshot-log"], strict=True):
        assert snapshot["timestamp-ms"] == entry["timestamp-ms"]
    times = [entry["timestamp-ms"] for entry in written["snapshot-log"]]
    assert times == sorted(times) and times[-1] == written["last-updated-ms"]
    assert written["current-snapshot-id"] == ids[-1] == metadata.current_snapshot_id
    schemas = {schema["schema-id"] for schema in written["schemas"]}
    assert {snapshot["schema-id"] for snapshot in written["snapshots"]} <= schemas


def test_many_versions_are_read_by_pyiceberg_and_duckdb(floe, topic):
    """Through a schema that records change, and one that an engine does, folds, and an expiry."""
    looks = Looks(floe, topic)
    metadata = looks.look()
    while metadata.last_sequence_number <= THIRD_RUN:
        metadata = looks.look()
    assert metadata.snapshots[0].sequence_number == 1 and len(metadata.schemas) >= 3
    operations = {snapshot.summary.operation.value for snapshot in metadata.snapshots}
    assert operations == {"append", "replace"}, "nothing was folded"
    looks.check()
    while len(metadata.snapshots) > SNAPSHOTS_MAX // 2:
        metadata = looks.look()
    for _ in range(AFTER_EXPIRY):
        looks.look()
    looks.check()
