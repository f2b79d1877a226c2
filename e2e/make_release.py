"""Makes the archive of a release for test_releases.py: a small data folder that holds a bit of everything.

    FLOE_BIN=target/release/floe .tools/venv/bin/python e2e/make_release.py VERSION

Once for each release, by its own build; an archive that was released is never made again.
"""
import json
import pathlib
import sys
import tarfile
import tempfile
import time

import confluent_kafka

from kit import CLIENT_SECONDS, Floe, consumer, create_topic, poll, producer, read_all, send

TOPIC, GROUP = "orders", "shippers"
# Longer than two rounds of merging.
MERGE_SECONDS = 25
# Tables name their files by the place of the folder, which is another one in each test; they are made there.
SETTINGS = {"iceberg.enable": "false"}


def fill(floe):
    admin = create_topic(floe, TOPIC, 2)
    create_topic(floe, "gone", 1)
    send(floe, "gone", ["lost with its topic"])
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        client = producer(floe, **{"compression.type": codec})
        for number in range(6):
            client.produce(TOPIC, key=f"k{number}", value=f"{codec} {number}", partition=number % 2)
            client.flush(CLIENT_SECONDS)
    admin.delete_topics(["gone"])["gone"].result(CLIENT_SECONDS)
    place = confluent_kafka.TopicPartition(TOPIC, 1, 4)
    admin.delete_records([place])[place].result(CLIENT_SECONDS)
    # Merged objects, and fresh segments behind them.
    time.sleep(MERGE_SECONDS)
    send(floe, TOPIC, ["fresh 0", "fresh 1"], partition=0)
    send(floe, TOPIC, ["fresh 2"], partition=1)


def commit(floe):
    """Commits an offset in the middle of partition 0, and says which record comes next."""
    client = consumer(floe, GROUP)
    client.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    records = poll(client, 8)
    client.commit(message=records[6], asynchronous=False)
    high = client.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, 1), timeout=CLIENT_SECONDS)[1]
    client.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, 1, high)], asynchronous=False)
    client.close()
    return [records[7].offset(), records[7].value().decode()]


def main(version):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        floe = Floe(folder, SETTINGS).start()
        fill(floe)
        after = commit(floe)
        read = read_all(floe, TOPIC)
        # Killed, so that logs and outcomes are there as a crash leaves them.
        floe.kill9()
        values = {index: [[record.offset(), record.value().decode()] for record in records] for index, records in read.items()}
        group = {"id": GROUP, "topic": TOPIC, "next": after}
        expected = {"topics": {TOPIC: values}, "deleted": "gone", "group": group}
        (folder / "expected.json").write_text(json.dumps(expected, indent=1))
        archive = pathlib.Path(__file__).parent / "releases" / f"{version}.tar.gz"
        archive.parent.mkdir(exist_ok=True)
        with tarfile.open(archive, "x:gz") as packed:
            packed.add(folder / "data", "data")
            packed.add(folder / "expected.json", "expected.json")
        print(f"{archive}: {archive.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
