"""The disk with the metadata is lost, and a snapshot from the bucket takes its place: what was acknowledged before it is there."""
import os
import shutil
import subprocess
import time

from kit import CLIENT_SECONDS, S3, Floe, duckdb_on, read_all, send

INTERVAL_MS = 1000


def snapshot_time(floe):
    lines = floe.get("/metrics")[1].splitlines()
    return int(next(line for line in lines if line.startswith("floe_metadata_snapshot_time_seconds ")).split()[1])


def wait_for_snapshot(floe):
    """Waits for a snapshot that was begun after now: seconds are whole, so two have to pass."""
    deadline, asked = time.monotonic() + CLIENT_SECONDS, int(time.time()) + 1
    while snapshot_time(floe) <= asked:
        assert time.monotonic() < deadline, floe.log_tail()
        time.sleep(0.2)


def command(floe, *arguments):
    """A command on the broker's stores: (status, what it printed)."""
    settings = ["--data", str(floe.data)]
    settings += [word for name, value in floe.settings.items() for word in ("--set", f"{name}={value}")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLOE_")} | floe.environment
    done = subprocess.run(
        [os.environ["FLOE_BIN"], *arguments, *settings], capture_output=True, text=True, timeout=CLIENT_SECONDS, env=environment)
    return done.returncode, done.stdout + done.stderr


def values(floe, topic):
    return [record.value().decode() for record in read_all(floe, topic)[0]]


def test_a_lost_disk_is_put_back_from_the_bucket(tmp_path, request, topic):
    store = S3()
    settings = store.settings | {"metadata.snapshot_interval_ms": INTERVAL_MS}
    floe = Floe(tmp_path, settings, store.environment)
    request.addfinalizer(lambda: floe.process and floe.kill9())
    floe.start()
    send(floe, topic, ['{"n":1}', '{"n":2}'], partition=0)
    with duckdb_on(floe) as lake:
        store.secret_for(lake)
        assert lake.sql(f"SELECT sum(n) FROM lake.kafka.{topic}").fetchall() == [(3,)]
    wait_for_snapshot(floe)
    floe.kill9()
    shutil.rmtree(floe.data)

    status, text = command(floe, "serve")
    assert status != 0 and "the metadata store is empty" in text and "floe restore --from-store" in text, text
    shutil.rmtree(floe.data)
    status, text = command(floe, "restore", "--list")
    assert status == 0 and text.startswith("SNAPSHOT"), text
    assert not floe.data.exists(), "a listing makes nothing"
    status, text = command(floe, "restore", "--from-store")
    assert status == 0 and "Nothing is deleted from the object store now" in text, text
    status, text = command(floe, "restore", "--from-store")
    assert status != 0 and "move it away" in text, text

    floe.start()
    assert values(floe, topic) == ['{"n":1}', '{"n":2}']
    send(floe, topic, ['{"n":4}'], partition=0)
    with duckdb_on(floe) as lake:
        store.secret_for(lake)
        assert lake.sql(f"SELECT sum(n) FROM lake.kafka.{topic}").fetchall() == [(7,)]
    # Asked to stop, it leaves all that it knows.
    floe.stop()
    shutil.rmtree(floe.data)
    status, text = command(floe, "restore", "--from-store")
    assert status == 0, text
    floe.start()
    assert values(floe, topic) == ['{"n":1}', '{"n":2}', '{"n":4}']
    status, text = command(floe, "doctor", "--json")
    assert "is not there" not in text, text
    floe.stop()


def test_on_a_directory_none_is_taken(floe, topic):
    send(floe, topic, ["one"], partition=0)
    assert snapshot_time(floe) == 0
    assert not list(floe.data.rglob("snapshots/*"))
    status, text = command(floe, "restore", "--list")
    assert status == 0 and "no snapshot" in text, text
