"""Spark beside the other engines: the session and the jars of the suite `spark`, on a broker whose store is a directory.

Its jars have no client of S3, so that the topics are made a second time, on that broker.
"""
import base64
import datetime

from spark import suite as spark

from engines.spelling import spell

BINARY = ["_kafka_key", "_kafka_value"]


def prepare():
    spark.SUITE.prepare()


class Spark:
    """ask() is as the other sessions' is."""

    def __init__(self, floe, folder):
        self.session = spark.Session(spark.SUITE, floe, folder)

    def ask(self, table, columns, where):
        names = ", ".join("`" + name.replace("`", "``") + "`" for name in columns)
        rows = self.session.sql(f"SELECT {names} FROM lake.kafka.{table}" + (f" WHERE {where}" if where else ""))
        return [spell({name: value_of(name, value) for name, value in row.items()}) for row in rows]

    def close(self):
        self.session.close()


def value_of(name, value):
    """A value of Spark's JSON, in which bytes are Base64 and times are text."""
    if name in BINARY:
        return base64.b64decode(value)
    if name == "_kafka_headers":
        return [{key: base64.b64decode(part) if key == "value" else part for key, part in header.items()} for header in value]
    if name == "_kafka_timestamp":
        return datetime.datetime.fromisoformat(value)
    return value
