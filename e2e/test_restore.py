"""A backup of the metadata is put back: what it does not know is lost, stated, and deleted only when somebody says so."""
import os
import shutil
import subprocess
import time

from pyiceberg.catalog import load_catalog

from kit import read_all, send

DELETION_SECONDS = 60


def run(floe, *arguments):
    """A command on the broker's folder, which must not run: (status, what it printed)."""
    settings = ["--data", str(floe.data), "--kafka", floe.kafka, "--http", floe.http]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLOE_")}
    done = subprocess.run(
        [os.environ["FLOE_BIN"], *arguments, *settings], capture_output=True, text=True, timeout=60, env=environment)
    return done.returncode, done.stdout + done.stderr


def metadata_files(folder):
    return sorted(folder.glob("metadata.sqlite*"))


def keep(source, target):
    """Copies the metadata file with its log, in the place of what is there."""
    target.mkdir(exist_ok=True)
    for old in metadata_files(target):
        old.unlink()
    for file in metadata_files(source):
        shutil.copy(file, target / file.name)


def deletion_stopped(floe):
    lines = floe.get("/metrics")[1].splitlines()
    return next(line for line in lines if line.startswith("floe_deletion_stopped ")).split()[1]


def wait_for_deletion(floe, value):
    deadline = time.monotonic() + DELETION_SECONDS
    while deletion_stopped(floe) != value:
        assert time.monotonic() < deadline, f"floe_deletion_stopped is not {value}"
        time.sleep(0.5)


def look(floe, table):
    load_catalog("floe", type="rest", uri=f"http://{floe.http}/iceberg").load_table(f"kafka.{table}")


def values(floe, topic):
    return [record.value().decode() for record in read_all(floe, topic)[0]]


def test_a_backup_of_the_metadata_is_put_back(floe, topic, tmp_path):
    send(floe, topic, ["kept"], partition=0)
    look(floe, topic)
    floe.stop()
    keep(floe.data, tmp_path / "backup")
    kept_files = set(floe.data.rglob("tables/*/*/*"))
    floe.start()
    send(floe, topic, ["lost 0", "lost 1"], partition=0)
    send(floe, f"{topic}_lost", ["lost"], partition=0)
    look(floe, topic)
    look(floe, f"{topic}_lost")
    floe.stop()
    keep(floe.data, tmp_path / "newer")
    objects = sorted(floe.data.rglob("*.kfs"))
    lost_table = sorted(path for path in floe.data.rglob("tables/*/*/*") if path not in kept_files)
    assert len(objects) >= 2 and len(lost_table) >= 8, lost_table
    lost_folder, = {path.parents[1] for path in lost_table} - {path.parents[1] for path in kept_files}

    keep(tmp_path / "backup", floe.data)
    status, text = run(floe, "restore")
    assert status == 0 and "Nothing is deleted from the object store now" in text, text
    status, text = run(floe, "doctor")
    assert status == 0 and "nothing is deleted from the object store" in text, text
    assert "committed after the backup" in text, text
    assert "are of 1 tables that the metadata does not know" in text, text
    floe.start()
    assert values(floe, topic) == ["kept"]
    wait_for_deletion(floe, "1")
    send(floe, topic, ["after"], partition=0)
    assert values(floe, topic) == ["kept", "after"]
    floe.stop()
    assert set(objects) <= set(floe.data.rglob("*.kfs")), "what the backup does not know is kept"
    assert set(lost_table) <= set(floe.data.rglob("tables/*/*/*")), "and so are the files of its tables"

    keep(floe.data, tmp_path / "restored")
    keep(tmp_path / "newer", floe.data)
    status, text = run(floe, "serve")
    assert status != 0 and "the object store is at incarnation" in text, text
    keep(tmp_path / "restored", floe.data)

    status, text = run(floe, "doctor", "--reconcile")
    assert status == 0 and "objects that nothing names are deleted again" in text, text
    floe.start()
    deadline = time.monotonic() + DELETION_SECONDS
    while set(objects) <= set(floe.data.rglob("*.kfs")) or list(lost_folder.glob("*/*")):
        assert time.monotonic() < deadline, "orphans stay after the reconciliation"
        time.sleep(0.5)
    assert deletion_stopped(floe) == "0"
    assert values(floe, topic) == ["kept", "after"]
