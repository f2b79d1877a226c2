"""Spark SQL on the table of a topic, through Floe's catalog, for reading and for writing: checks of ours, a directory as store."""
import base64
import json
import subprocess
import threading
import time

import jars
from kit import create_topic, producer, send
from lines import print_test
from suite import FAIL, PASS, Suite, Test

STATEMENT_SECONDS = 180
TOPIC = "spark_check"
TABLE = f"lake.kafka.{TOPIC}"
JSON_TOPIC = "spark_json"
JSON_TABLE = f"lake.kafka.{JSON_TOPIC}"
SENT_MS = 1_700_000_000_123
ROWS = 200
COLUMNS = [
    "_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_kafka_timestamp_ms", "_kafka_timestamp_type",
    "_kafka_key", "_kafka_value", "_kafka_headers", "_kafka_rescued", "_kafka_error",
]
# What Spark wants opened in a Java of today; its own launcher sets the same.
OPENED = [
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action",
    "sun.util.calendar",
]


class Session:
    """A running Spark: sql() returns rows as dicts, or raises what Spark said."""

    def __init__(self, suite, floe, folder):
        flags = ["-Xmx1500m", "-Djdk.reflect.useDirectMethodHandle=false",
                 f"-Dlog4j2.configurationFile={suite.folder / 'log4j2.properties'}"]
        for package in OPENED:
            flags += ["--add-opens", f"java.base/{package}=ALL-UNNAMED"]
        command = jars.command(suite, "Sql", f"http://{floe.http}/iceberg", flags=flags)
        with (folder / "spark.log").open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.answer()

    def answer(self):
        killer = threading.Timer(STATEMENT_SECONDS, self.process.kill)
        killer.start()
        rows = []
        try:
            for line in self.process.stdout:
                if line == "OK\n":
                    return rows
                if line.startswith("ERROR "):
                    raise AssertionError(line)
                rows.append(json.loads(line))
        finally:
            killer.cancel()
        raise AssertionError("Spark ended, or did not answer in time")

    def sql(self, statement):
        self.process.stdin.write(f"{statement}\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait(STATEMENT_SECONDS)


def expect(got, wanted):
    assert got == wanted, f"got {got}, want {wanted}"


def lists_the_table(spark, _):
    expect([row["tableName"] for row in spark.sql("SHOW TABLES IN lake.kafka")], [TOPIC])


def columns_come_first_and_in_order(spark, _):
    expect([row["col_name"] for row in spark.sql(f"DESCRIBE {TABLE}")][:len(COLUMNS)], COLUMNS)


def counts_every_record(spark, _):
    expect(spark.sql(f"SELECT count(*) AS n, count(DISTINCT _kafka_partition, _kafka_offset) AS d FROM {TABLE}"),
           [{"n": ROWS + 3, "d": ROWS + 3}])


def values_are_what_was_sent(spark, _):
    rows = spark.sql(f"SELECT * FROM {TABLE} WHERE _kafka_partition = 1 ORDER BY _kafka_offset")
    encoded = [base64.b64encode(part).decode() for part in (b"key", b"value \xff", b"1")]
    expect(len(rows), 3)
    expect([rows[0][name] for name in COLUMNS[1:5]], [0, "2023-11-14T22:13:20.123Z", SENT_MS, 0])
    expect((rows[0]["_kafka_key"], rows[0]["_kafka_value"]), tuple(encoded[:2]))
    expect(rows[0]["_kafka_headers"], [{"key": "a", "value": encoded[2]}, {"key": "none"}, {"key": "a", "value": ""}])
    expect(["_kafka_key" in row for row in rows], [True, False, True])
    expect(["_kafka_value" in row for row in rows], [True, True, False])


def filters_are_pushed_down_right(spark, _):
    rows = spark.sql(f"""SELECT _kafka_offset AS o FROM {TABLE} WHERE _kafka_partition = 0
        AND _kafka_offset BETWEEN 50 AND 52 ORDER BY o""".replace("\n", " "))
    expect([row["o"] for row in rows], [50, 51, 52])


def a_query_sees_what_was_acknowledged_before_it(spark, floe):
    for more in (1, 2, 3):
        send(floe, TOPIC, [b"later"], partition=2)
        expect(spark.sql(f"SELECT count(*) AS n FROM {TABLE} WHERE _kafka_partition = 2"), [{"n": more}])


def snapshots_and_files_can_be_read(spark, _):
    expect(len(spark.sql(f"SELECT * FROM {TABLE}.snapshots")) >= 4, True)
    expect(spark.sql(f"SELECT sum(record_count) AS n FROM {TABLE}.files"), [{"n": ROWS + 6}])
    expect([row["name"] for row in spark.sql(f"SELECT name FROM {TABLE}.refs ORDER BY name")], ["floe", "main"])


def time_travel_shows_an_old_snapshot(spark, _):
    """Each snapshot has what it says; where commits fall between the records sent is the background's choice."""
    columns = "snapshot_id AS id, summary['total-records'] AS total"
    snapshots = spark.sql(f"SELECT {columns} FROM {TABLE}.snapshots ORDER BY committed_at, snapshot_id")
    totals = [int(snapshot["total"]) for snapshot in snapshots]
    expect((min(totals) < ROWS + 6, max(totals)), (True, ROWS + 6))
    for snapshot, total in zip(snapshots, totals):
        expect(spark.sql(f"SELECT count(*) AS n FROM {TABLE} VERSION AS OF {snapshot['id']}"), [{"n": total}])
    expect(spark.sql(f"SELECT count(*) AS n FROM {TABLE} VERSION AS OF 'floe'"), [{"n": ROWS + 6}])


def it_makes_tables_of_its_own(spark, _):
    spark.sql("CREATE NAMESPACE lake.own")
    spark.sql(f"CREATE TABLE lake.own.made USING iceberg AS SELECT _kafka_partition AS p, count(*) AS n FROM {TABLE} GROUP BY 1")
    spark.sql("INSERT INTO lake.own.made VALUES (7, 1)")
    expect(spark.sql("SELECT sum(n) AS n FROM lake.own.made"), [{"n": ROWS + 7}])
    spark.sql("CREATE OR REPLACE TABLE lake.own.made USING iceberg AS SELECT 1 AS one")
    spark.sql("ALTER TABLE lake.own.made RENAME TO own.renamed")
    expect(spark.sql("SELECT * FROM lake.own.renamed"), [{"one": 1}])
    expect([row["tableName"] for row in spark.sql("SHOW TABLES IN lake.own")], ["renamed"])
    spark.sql("DROP TABLE lake.own.renamed")
    spark.sql("DROP NAMESPACE lake.own")
    expect(sorted(row["namespace"] for row in spark.sql("SHOW NAMESPACES IN lake")), ["kafka"])


def columns_that_it_changes_are_bound_by_their_ids(spark, floe):
    send(floe, JSON_TOPIC, [b'{"a":1,"b":2}'])
    for change in ("RENAME COLUMN a TO amount", "DROP COLUMN b", "ADD COLUMN note string FIRST",
                   "ALTER COLUMN _kafka_partition TYPE bigint"):
        spark.sql(f"ALTER TABLE {JSON_TABLE} {change}")
    send(floe, JSON_TOPIC, [b'{"a":3,"b":4,"note":5}'])
    rows = spark.sql(f"SELECT amount, note, note__2, _kafka_partition AS p FROM {JSON_TABLE} ORDER BY _kafka_offset")
    expect(rows, [{"amount": 1, "p": 0}, {"amount": 3, "note__2": 5, "p": 0}])
    names = [row["col_name"] for row in spark.sql(f"DESCRIBE {JSON_TABLE}")]
    expect((names[0], "b" in names), ("note", False))
    expect(state(floe), ("running", None))


def rows_that_it_changes_stay_so(spark, floe):
    spark.sql(f"DELETE FROM {JSON_TABLE} WHERE amount = 1")
    spark.sql(f"UPDATE {JSON_TABLE} SET note = 'seen' WHERE amount = 3")
    send(floe, JSON_TOPIC, [b'{"a":6}'])
    expect(spark.sql(f"SELECT amount, note FROM {JSON_TABLE} ORDER BY amount"),
           [{"amount": 3, "note": "seen"}, {"amount": 6}])
    spark.sql("CALL lake.system.rewrite_data_files(table => 'kafka.spark_json', options => map('rewrite-all', 'true'))")
    spark.sql("CALL lake.system.expire_snapshots(table => 'kafka.spark_json', older_than => now(), retain_last => 1)")
    send(floe, JSON_TOPIC, [b'{"a":7}'])
    expect(spark.sql(f"SELECT count(*) AS n FROM {JSON_TABLE}"), [{"n": 3}])
    expect(state(floe), ("running", None))


def a_topics_table_that_it_replaces_is_stopped(spark, floe):
    spark.sql(f"CREATE OR REPLACE TABLE {JSON_TABLE} USING iceberg AS SELECT * FROM {JSON_TABLE}")
    send(floe, JSON_TOPIC, [b'{"a":8}'])
    expect(spark.sql(f"SELECT count(*) AS n FROM {JSON_TABLE}"), [{"n": 3}])
    stopped, reason = state(floe)
    expect((stopped, reason.partition(":")[0]), ("stopped", "replaced"))


def state(floe):
    (table,) = [table for table in json.loads(floe.get("/v1/tables")[1]) if table["topic"] == JSON_TOPIC]
    return table["state"], table["reason"]


# In this order: later ones count what earlier ones sent.
CHECKS = [
    lists_the_table, columns_come_first_and_in_order, counts_every_record, values_are_what_was_sent,
    filters_are_pushed_down_right, a_query_sees_what_was_acknowledged_before_it, snapshots_and_files_can_be_read,
    time_travel_shows_an_old_snapshot, it_makes_tables_of_its_own,
    columns_that_it_changes_are_bound_by_their_ids, rows_that_it_changes_stay_so, a_topics_table_that_it_replaces_is_stopped,
]


def fill(floe):
    create_topic(floe, TOPIC, 3)
    send(floe, TOPIC, [f"value {number}" for number in range(ROWS)], partition=0)
    client = producer(floe)
    headers = [("a", b"1"), ("none", None), ("a", b"")]
    client.produce(TOPIC, key=b"key", value=b"value \xff", headers=headers, partition=1, timestamp=SENT_MS)
    client.produce(TOPIC, key=None, value=b"no key", partition=1)
    client.produce(TOPIC, key=b"gone", value=None, partition=1)
    expect(client.flush(60), 0)


class Spark(Suite):
    name = "spark"
    what = "Spark 4.1.1 with Iceberg 1.12.0, reading and writing through the catalog, checks of ours"
    on_kafka = "no tables there"
    needs = jars.NEEDS
    settings = {"iceberg.external_write": "true"}

    def prepare(self):
        jars.prepare(self)

    def run(self, floe, folder, only=()):
        # The checks build on each other, so all of them run on a topic of their own, whatever is asked for.
        fill(floe)
        spark = Session(self, floe, folder)
        try:
            tests = [self.run_one(check, spark, floe) for check in CHECKS]
        finally:
            spark.close()
        return [test for test in tests if not only or test.name in only]

    @staticmethod
    def run_one(check, spark, floe):
        name, began = check.__name__.replace("_", " "), time.monotonic()
        try:
            check(spark, floe)
            test = Test(name, PASS, time.monotonic() - began)
        except AssertionError as error:
            test = Test(name, FAIL, time.monotonic() - began, str(error))
        print_test(test)
        return test


SUITE = Spark()
