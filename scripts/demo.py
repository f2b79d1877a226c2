"""The demo itself; scripts/demo builds and downloads what it needs, and says how it is used.

    demo.py PACKAGES_FOLDER DEMO_FOLDER [sql]

The flights' figures are taken from the source as it is sent, from the log as a consumer group reads it, and from the table as
DuckDB, PyIceberg and, where Java is there, Spark see it through Floe's catalog. Then come records of other shapes, each with
a question that its source answers too. Exits with 1 where anything differs.
"""
import collections
import dataclasses
import json
import os
import pathlib
import readline  # noqa: F401: gives the prompt its history and keys
import shutil
import sys
import time
import typing

import duckdb
from demo_data import has_npm, read_earthquakes, read_flights, read_movies, read_webhooks
from demo_engines import ask_duckdb, ask_pyiceberg, ask_spark, attach, has_java
from kit import CLIENT_SECONDS, Floe, consumer, create_topic, floe_command, producer  # demo_engines knows where it is

TOPIC = "flights"
PARTITIONS = 4
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


@dataclasses.dataclass
class Shape:
    """Records of one kind: where they come from, a question in SQL, and its answer from the records themselves."""

    topic: str
    read: typing.Callable
    query: str
    expected: typing.Callable


def strongest(earthquakes):
    """As the query: how many, the strongest one's magnitude, and how many were felt."""
    magnitudes = [each["properties"]["mag"] for each in earthquakes]
    felt = sum(each["properties"]["felt"] is not None for each in earthquakes)
    return len(earthquakes), float(max(each for each in magnitudes if each is not None)), felt


def titles(movies):
    """As the query: how many movies, titles that are texts, titles that are numbers, and ratings above 8."""
    kinds = collections.Counter(type(each["Title"]) for each in movies)
    good = sum((each["IMDB Rating"] or 0) > 8 for each in movies)
    return len(movies), kinds[str], kinds[int], good


def senders(payloads):
    """As the query: how many payloads, how many have a sender, and how many different repositories they are of."""
    repositories = {each["repository"]["full_name"] for each in payloads if each.get("repository")}
    return len(payloads), sum(bool(each.get("sender")) for each in payloads), len(repositories)


SHAPES = [
    Shape("earthquakes", read_earthquakes, """SELECT count(*), max(coalesce(properties.mag__double, properties.mag)),
        count(properties.felt) FROM lake.kafka.earthquakes""", strongest),
    Shape("movies", read_movies, """SELECT count(*), count("Title"), count("Title__long"), count(*) FILTER ("IMDB Rating" > 8)
        FROM lake.kafka.movies""", titles),
    Shape("webhooks", read_webhooks, """SELECT count(*), count(sender.login), count(DISTINCT repository.full_name)
        FROM lake.kafka.webhooks""", senders),
]


def send_all(floe, topic, records):
    """Sends (key, record) pairs as JSON; ends the demo where one is not acknowledged."""
    errors = []
    client = producer(floe, **{"linger.ms": 20, "batch.size": 262_144})

    def on_delivery(error, _):
        if error:
            errors.append(error)

    for key, record in records:
        value = json.dumps(record, separators=(",", ":"))
        while True:
            try:
                client.produce(topic, key=key, value=value, on_delivery=on_delivery)
                break
            except BufferError:
                client.poll(QUEUE_WAIT_SECONDS)
        client.poll(0)
    if client.flush(CLIENT_SECONDS) or errors:
        sys.exit(f"demo: not every record was acknowledged: {errors[:3]}")


def send_flights(floe, flights):
    """Sends every flight, keyed by its tail number, and returns the figures of what was sent."""
    sent = Figures()

    def keyed():
        for flight in flights:
            sent.add(flight["tailnum"], flight)
            yield flight["tailnum"], flight

    send_all(floe, TOPIC, keyed())
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
    print(f"\nSQL on lake.kafka.{TOPIC} and the others, a statement a line, Ctrl-D ends. For example:")
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


def run(packages, folder):
    """The whole demo; returns the exit status. Leaves the broker running where KEEP=1 says so."""
    floe = Floe(folder)
    timed("start", floe.start)
    try:
        equal = show_flights(floe, packages, folder) and show_shapes(floe, packages, folder)
        print(f"\n{floe_command('tables', '--http', floe.http).stdout}")
        if equal and sys.stdin.isatty() and not os.environ.get("KEEP"):
            with attach(floe, folder) as lake:
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
    print(f"\n{'source, log and tables agree' if equal else 'source, log and tables DIFFER'}")
    return 0 if equal else 1


def show_flights(floe, packages, folder):
    """A year of flights, counted five ways; returns whether they agree."""
    create_topic(floe, TOPIC, PARTITIONS)
    sent = timed(f"send to topic {TOPIC}", lambda: send_flights(floe, read_flights(packages)))
    figures = {"source": sent, "log": timed("read it with a consumer group", lambda: read_log(floe, sent.flights))}
    with timed("attach DuckDB", lambda: attach(floe, folder)) as lake:
        answer = timed(f"query the table kafka.{TOPIC} with DuckDB", lambda: ask_duckdb(lake))
    figures["DuckDB"] = Figures(*map(int, answer))
    figures["PyIceberg"] = Figures(*timed("the same with PyIceberg", lambda: ask_pyiceberg(floe)))
    if has_java():
        figures["Spark"] = Figures(*timed("the same with Spark", lambda: ask_spark(floe, folder)))
    else:
        print("no Spark: it needs java, javac and mvn")
    return show_figures(figures)


def show_shapes(floe, packages, folder):
    """Nested records, types that conflict, many shapes in one topic: each as sent and as its table shows it."""
    if not has_npm():
        print("\nno earthquakes, movies and webhooks: npm, which gets them, is not there")
        return True
    equal = True
    with attach(floe, folder) as lake:
        for shape in SHAPES:
            records = list(shape.read(packages))
            create_topic(floe, shape.topic, 1)
            timed(f"send {len(records):,} records to topic {shape.topic}", lambda: send_all(floe, shape.topic, records))
            row, = lake.sql(shape.query).fetchall()
            expected = shape.expected([record for _, record in records])
            same = row == expected
            equal = equal and same
            print(f"\n  {' '.join(shape.query.split())}\n  table  {row}\n  source {expected}{'' if same else '   DIFFER'}\n")
    return equal


def main(packages, folder, *arguments):
    packages, folder = pathlib.Path(packages), pathlib.Path(folder)
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
    return run(packages, folder)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
