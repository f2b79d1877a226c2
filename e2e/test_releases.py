"""Does this build open what each release has written? `releases/VERSION.tar.gz` is a data folder as that release left it, and
`expected.json` in the archive says what is in it. make_release.py makes one.
"""
import json
import pathlib
import tarfile

import pytest

from kit import Floe, consumer, duckdb_on, poll, read_all, send

ARCHIVES = sorted((pathlib.Path(__file__).parent / "releases").glob("*.tar.gz"))


def test_there_is_an_archive():
    assert ARCHIVES, "no data folder of any release"


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name)
def released(request, tmp_path):
    """A broker on a copy of a release's folder, and what is expected of it."""
    with tarfile.open(request.param) as archive:
        # Debian's Python 3.11 does not know filters yet.
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    expected = json.loads((tmp_path / "expected.json").read_text())
    # A release's records are older than what is kept by default.
    broker = Floe(tmp_path, {"kafka.log.retention.ms": "-1"})
    request.node.floe = broker
    yield broker.start(), expected
    broker.stop()


def contents(records):
    return [[record.offset(), record.value().decode()] for record in records]


def test_records_offsets_and_groups_are_there(released):
    floe, expected = released
    for topic, partitions in expected["topics"].items():
        read = read_all(floe, topic)
        assert {str(index): contents(records) for index, records in read.items()} == partitions
    group = expected["group"]
    client = consumer(floe, group["id"])
    client.subscribe([group["topic"]])
    (first,) = poll(client, 1)
    assert [first.offset(), first.value().decode()] == group["next"]
    client.close()
    assert floe.get(f"/v1/topics/{expected['deleted']}")[0] == 404


def test_it_takes_new_records_and_shows_all_as_a_table(released):
    floe, expected = released
    topic, partitions = next(iter(expected["topics"].items()))
    (added,) = send(floe, topic, ["added"], partition=0)
    last = partitions["0"][-1][0]
    assert added.offset() == last + 1
    floe.restart()
    with duckdb_on(floe) as session:
        rows = session.execute(
            f"SELECT _kafka_partition, _kafka_offset, _kafka_value FROM lake.kafka.{topic} ORDER BY ALL").fetchall()
    held = [(int(index), *record) for index, records in partitions.items() for record in records]
    held.append((0, added.offset(), "added"))
    assert [(index, offset, bytes(value).decode()) for index, offset, value in rows] == sorted(held)
