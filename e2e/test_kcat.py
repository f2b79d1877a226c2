"""kcat 1.7.1: an old librdkafka, and the tool that people try first."""
import json

import pytest

from kit import kcat, run_kcat

KEYED = b"k1:v1\nk2:v2\nk3:v3\nk4:v4\nk5:v5\n"


@pytest.fixture
def five(floe, topic):
    """A topic, created by being written to, with five keyed records in partition 0."""
    kcat(floe, "-P", "-t", topic, "-p", 0, "-K:", stdin=KEYED)
    return topic


def read(floe, topic, *arguments, form="%k=%s"):
    """The lines that kcat reads from partition 0."""
    output = kcat(floe, "-C", "-t", topic, "-p", 0, "-e", "-q", "-f", f"{form}\n", *arguments)
    return output.decode().splitlines()


def query(floe, topic, timestamp):
    """The offset that ListOffsets answers for a time in ms, or -1 (end) and -2 (start)."""
    return int(kcat(floe, "-Q", "-t", f"{topic}:0:{timestamp}").split()[-1])


def test_metadata_lists_the_broker(floe):
    assert " 1 brokers:" in kcat(floe, "-L").decode()
    brokers = json.loads(kcat(floe, "-L", "-J"))["brokers"]
    assert [broker["name"] for broker in brokers] == [floe.kafka]


def test_whole_partition(floe, five):
    assert read(floe, five) == ["k1=v1", "k2=v2", "k3=v3", "k4=v4", "k5=v5"]


def test_from_an_offset(floe, five):
    assert read(floe, five, "-o", 3, "-c", 1, form="%o %s") == ["3 v4"]


def test_tail(floe, five):
    assert read(floe, five, "-o", -2, form="%s") == ["v4", "v5"]


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 5), (-2, 0), (1000, 0)], ids=["latest", "earliest", "by time"])
def test_offsets(floe, five, timestamp, offset):
    assert query(floe, five, timestamp) == offset


def test_time_after_the_last_record(floe, five):
    year_2100_ms = 4_102_444_800_000
    assert query(floe, five, year_2100_ms) == -1


def test_headers(floe, topic):
    kcat(floe, "-P", "-t", topic, "-p", 0, "-H", "a=1", "-H", "b=2", "-H", "a=3", "-k", "key", stdin=b"value\n")
    assert read(floe, topic, form="%h %k %s") == ["a=1,b=2,a=3 key value"]


def test_null_and_empty_are_not_the_same(floe, topic):
    kcat(floe, "-P", "-t", topic, "-p", 0, "-K:", "-Z", stdin=b"gone:\n")
    kcat(floe, "-P", "-t", topic, "-p", 0, "-K:", stdin=b"empty:\n")
    assert read(floe, topic, form="%k %S") == ["gone -1", "empty 0"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(floe, topic, codec):
    lines = [f"{number} {'x' * 100}" for number in range(500)]
    kcat(floe, "-P", "-t", topic, "-p", 0, "-z", codec, stdin="\n".join(lines).encode())
    assert read(floe, topic, form="%s") == lines


def test_large_record(floe, topic):
    value = bytes(range(1, 128)).replace(b"\n", b"") * 7000
    kcat(floe, "-P", "-t", topic, "-p", 0, stdin=value)
    assert kcat(floe, "-C", "-t", topic, "-p", 0, "-e", "-q", "-f", "%s") == value


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(floe, topic, acks):
    kcat(floe, "-P", "-t", topic, "-p", 0, "-X", f"acks={acks}", stdin=KEYED)
    # acks=0 tells nobody when the record is there: a consumer that waits for it gets it
    got = kcat(floe, "-C", "-t", topic, "-p", 0, "-o", "beginning", "-c", 5, "-q", "-f", "%s\n")
    assert got.decode().split() == ["k1:v1", "k2:v2", "k3:v3", "k4:v4", "k5:v5"]


def test_idempotent_producer(floe, topic):
    settings = ["-X", "enable.idempotence=true", "-X", "acks=all"]
    kcat(floe, "-P", "-t", topic, "-p", 0, *settings, stdin=b"once\n")
    assert read(floe, topic, form="%s") == ["once"]


def test_json_envelope(floe, five):
    line = kcat(floe, "-C", "-t", five, "-p", 0, "-o", 0, "-c", 1, "-e", "-q", "-J").splitlines()[0]
    record = json.loads(line)
    fields = {key: record[key] for key in ("topic", "partition", "offset", "key", "payload")}
    assert fields == {"topic": five, "partition": 0, "offset": 0, "key": "k1", "payload": "v1"}
    assert record["tstype"] == "create"


def test_unknown_partition_is_refused(floe, five):
    assert run_kcat(floe, "-C", "-t", five, "-p", 77, "-e", "-q").returncode != 0


def test_group_resumes_where_it_committed(floe, five):
    group = ["-G", f"group-{five}", "-X", "auto.offset.reset=earliest", "-e", "-q", "-f", "%k\n", five]
    assert kcat(floe, *group).decode().split() == ["k1", "k2", "k3", "k4", "k5"]
    assert kcat(floe, *group).decode().split() == []
