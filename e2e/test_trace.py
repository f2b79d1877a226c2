"""What one acknowledgement rests on, by the system calls of the broker: each step is done before the next begins.

data sync -> rename -> sync of the folder -> commit into SQLite's log -> sync of that log -> answer
"""
import dataclasses
import os
import pathlib
import subprocess

import pytest

import raw_kafka
from kit import Floe, create_topic, send

CORRELATION_ID = 0x464C4F45
SYNCS = {"fsync", "fdatasync"}
WRITES = {"write", "pwrite", "writev", "pwritev", "sendto", "sendmsg"}


@dataclasses.dataclass
class Call:
    """A system call: began and ended are places in the order of all calls; ended is None where it never returned."""

    name: str
    path: str
    target: str
    data: bytes
    began: int
    ended: int | None = None
    result: int | None = None


def read_trace(path):
    """The calls of a trace, in the order in which they began (trace.c has the format)."""
    calls, running = [], {}
    for place, line in enumerate(path.read_text(errors="replace").splitlines()):
        kind, thread, name, *fields = line.split("\t")
        if kind == "E":
            source, target, data = fields
            running[thread] = Call(name, source, target, b"" if data == "-" else bytes.fromhex(data), place)
            calls.append(running[thread])
        else:
            running[thread].ended, running[thread].result = place, int(fields[0])
    return calls


@pytest.fixture(scope="session")
def tracer(tmp_path_factory):
    program = tmp_path_factory.mktemp("trace") / "trace"
    source = pathlib.Path(__file__).with_name("trace.c")
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    return program


@pytest.fixture
def traced(tmp_path, tracer, request):
    """A broker whose calls go to a file `trace`. Without tables, whose commits would be calls of their own."""
    broker = Floe(tmp_path, {"iceberg.enable": "false"}, wrapper=[tracer, tmp_path / "trace"])
    request.node.floe = broker
    yield broker.start()
    if broker.process is not None:
        broker.stop()


def only(calls):
    found = list(calls)
    assert len(found) == 1, f"one is expected: {found}"
    return found[0]


def assert_in_order(*calls):
    for before, after in zip(calls, calls[1:], strict=False):
        assert before.result is not None and before.result >= 0, before
        assert before.ended < after.began, f"{before} was not done before {after}"


def calls_of_one_produce(floe, topic):
    """The calls from a warm broker's receipt of one record to its answer, and that answer's own."""
    create_topic(floe, topic, 1)
    send(floe, topic, [b"warm"])
    return calls_of_the_next_produce(floe, topic, 1)


def calls_of_the_next_produce(floe, topic, offset):
    """The same for a topic whose next offset is `offset`."""
    trace = floe.data.parent / "trace"
    first = len(trace.read_text(errors="replace").splitlines())
    correlation = CORRELATION_ID + offset
    assert raw_kafka.produce(floe.kafka, topic, 0, b"traced", correlation) == (0, offset)
    calls = [call for call in read_trace(trace) if call.began >= first]
    marker = correlation.to_bytes(4, "big")
    answer = only(call for call in calls if call.name in WRITES and call.path.startswith("socket:")
                  and call.data[4:8] == marker)
    return [call for call in calls if call.began < answer.began], answer


def test_an_acknowledgement_follows_every_sync(traced, topic):
    calls, answer = calls_of_one_produce(traced, topic)
    store, log = str(traced.data / "store"), str(traced.data / "metadata.sqlite-wal")
    named = only(call for call in calls if call.name in ("rename", "link") and "/wal/" in call.target)
    data_synced = only(call for call in calls if call.name in SYNCS and call.path == named.path)
    folder = str(pathlib.Path(named.target).parent)
    folder_synced = only(call for call in calls if call.name in SYNCS and call.path == folder)
    assert named.target.startswith(store) and named.path.startswith(f"{store}/.tmp/")
    written = [call for call in calls if call.name in WRITES and call.path == named.path]
    committed = [call for call in calls if call.name in WRITES and call.path == log and call.began > folder_synced.ended]
    assert written and committed
    log_synced = [call for call in calls if call.name in SYNCS and call.path == log][-1]

    for write in written:
        assert_in_order(write, data_synced)
    assert_in_order(data_synced, named, folder_synced, committed[0])
    assert_in_order(committed[-1], log_synced, answer)
    # A folder that is new has its name synced before anything in it is relied on.
    for made in (call for call in calls if call.name == "mkdir" and call.path.startswith(store) and call.result == 0):
        above = str(pathlib.Path(made.path).parent)
        assert_in_order(made, only(call for call in calls if call.name in SYNCS and call.path == above), named)


def test_a_small_produce_takes_the_syncs_of_one_put_and_one_of_the_metadata(traced, topic):
    store, log = str(traced.data / "store"), str(traced.data / "metadata.sqlite-wal")
    create_topic(traced, topic, 1)
    send(traced, topic, [b"warm"])
    counts = []
    for offset in range(1, 6):
        calls, _ = calls_of_the_next_produce(traced, topic, offset)
        synced = [call.path for call in calls if call.name in SYNCS]
        of_store = sum(path.startswith(store) for path in synced)
        # The name of each folder that is new to the broker is synced once, whatever comes into it.
        folders = sum(call.name == "mkdir" and call.path.startswith(store) for call in calls)
        counts.append((of_store - folders, synced.count(log), len(synced) - of_store - synced.count(log)))
    # The data and its folder; a commit. A job of the broker's own may sync in between, but not each time.
    assert min(counts) == (2, 1, 0), counts


def test_segments_are_written_past_the_kernels_cache_where_it_can_be(traced, topic):
    calls, _ = calls_of_one_produce(traced, topic)
    opened = only(call for call in calls if call.name == "openat" and "/store/.tmp/" in call.path)
    assert (opened.data == b"\x01") == takes_direct_writes(traced.data)


def takes_direct_writes(folder):
    try:
        os.close(os.open(folder / "probe", os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def test_an_unfinished_sync_is_found(tmp_path):
    lines = ["E\t1\tfdatasync\ta\t-\t-", "X\t1\tfdatasync\t0", "E\t2\trename\ta\tb\t-", "X\t2\trename\t0"]
    (tmp_path / "right").write_text("\n".join(lines))
    (tmp_path / "wrong").write_text("\n".join([lines[0], lines[2], lines[1], lines[3]]))
    assert_in_order(*read_trace(tmp_path / "right"))
    with pytest.raises(AssertionError, match="was not done before"):
        assert_in_order(*read_trace(tmp_path / "wrong"))
