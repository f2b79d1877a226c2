"""Constructs that are more than their values: keys, times and headers, commits in between, folds, transactions, fresh looks.

Each is a topic that `fill` makes and a check of it; those of one session make topics of their own.
"""
import datetime
import json
import time

from kit import CLIENT_SECONDS, create_topic, producer, send
from test_transactions import transactional

COLUMNS = [
    "_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_kafka_timestamp_ms", "_kafka_timestamp_type",
    "_kafka_key", "_kafka_value", "_kafka_rescued",
]
HEADERS = [("a", b"1"), ("none", None), ("a", b""), ("b", b"\xff")]
SENT_MS = 1_700_000_000_123
DAY_MS = 86_400_000
DAYS = 5
LOOKS = 24
FOLD_SECONDS = 180
ROUNDS = 3


def look(floe, topic):
    """Loads a table, which commits what its topic has; returns its metadata."""
    status, answer = floe.get(f"/iceberg/v1/floe/namespaces/kafka/tables/{topic}")
    assert status == 200, answer
    return json.loads(answer)["metadata"]


def fill(floe, constructs):
    """Makes the topics of all constructs."""
    # The upkeep takes one table after the other: this one while there are no others.
    fill_folded(floe)
    for construct in constructs:
        send(floe, construct.topic, construct.values)
        look(floe, construct.topic)
    for make in (fill_records, fill_columns, fill_days, fill_transactions):
        make(floe)


def fill_records(floe):
    create_topic(floe, "records", 2)
    client = producer(floe)
    client.produce("records", key=b"key \xff", value=b"value \xff", headers=HEADERS, partition=1, timestamp=SENT_MS)
    client.produce("records", key=b"", value=b'{"a":1}', partition=0, timestamp=SENT_MS + 1)
    assert client.flush(CLIENT_SECONDS) == 0
    client.produce("records", value=b"no key", partition=0, timestamp=SENT_MS + 2)
    client.produce("records", key=b"gone", value=None, partition=0, timestamp=SENT_MS + 3)
    assert client.flush(CLIENT_SECONDS) == 0


def record(partition, offset, ms, key, value, **more):
    """The ten columns of a record, but the error."""
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=ms)
    row = dict(zip(COLUMNS, (partition, offset, moment, ms, 0, key, value), strict=False))
    return {name: found for name, found in row.items() if found is not None} | more


def columns_of_the_record(session, _):
    session.expect("records", COLUMNS, [
        record(0, 0, SENT_MS + 1, b"", None), record(0, 1, SENT_MS + 2, None, b"no key"),
        record(0, 2, SENT_MS + 3, b"gone", None), record(1, 0, SENT_MS, b"key \xff", b"value \xff")])
    session.expect("records", ["_kafka_offset"], [{"_kafka_offset": 0}], "_kafka_partition = 1")


def headers(session, _):
    sent = [{"key": key, "value": value} for key, value in HEADERS]
    session.expect("records", ["_kafka_headers"], [{"_kafka_headers": []}] * 3 + [{"_kafka_headers": sent}])


def tombstone(session, _):
    session.expect("records", ["_kafka_key", "_kafka_value", "a"], [{"_kafka_key": b"gone"}],
                   "_kafka_timestamp_ms = 1700000000126")


def error_of_a_record(session, _):
    """What is said beside a record that looked like JSON; the message is Floe's, and only its being there is asked."""
    rows = session.ask("errors", ["_kafka_value", "_kafka_error"])
    shown = [[bool(row.get("_kafka_value")), sorted(row.get("_kafka_error", ["no error"]))] for row in rows]
    assert shown == [[False, ["no error"]], [True, ["class", "message"]]], f"got {shown}"


def fill_columns(floe):
    send(floe, "errors", [b'{"a":1}', b'{"a":'])
    for value in ('{"a":1}', '{"a":2,"b":"x"}', '{"a":"text","o":{"y":1}}', '{"o":{"y":2,"z":[1]}}'):
        send(floe, "columns_added", [value])
        look(floe, "columns_added")


def columns_added(session, _):
    rows = [{"a": 1}, {"a": 2, "b": "x"}, {"a__string": "text", "o": {"y": 1}}, {"o": {"y": 2, "z": [1]}}]
    session.expect("columns_added", ["a", "b", "a__string"], [{k: v for k, v in row.items() if k != "o"} for row in rows])
    session.expect("columns_added", ["a"], [{"a": 2}], "b = 'x'")


def members_added(session, _):
    """A column of an object that came later, and a list in it."""
    session.expect("columns_added", ["o"], [{}, {}, {"o": {"y": 1}}, {"o": {"y": 2, "z": [1]}}])


def fill_days(floe):
    client = producer(floe)
    for day in range(DAYS):
        client.produce("days", value=json.dumps({"day": day}), timestamp=SENT_MS + day * DAY_MS)
    assert client.flush(CLIENT_SECONDS) == 0


def days(session, _):
    """Files of one day each: the spec of the table is day(_kafka_timestamp)."""
    session.expect("days", ["day"], [{"day": day} for day in range(DAYS)])
    session.expect("days", ["day"], [{"day": 2}, {"day": 3}],
                   f"_kafka_timestamp_ms >= {SENT_MS + 2 * DAY_MS} AND _kafka_timestamp_ms < {SENT_MS + 4 * DAY_MS}")


def fill_transactions(floe):
    create_topic(floe, "transactions", 1)
    client = transactional(floe, "transactions")
    for number, ending in enumerate(["commit", "abort", "commit", "abort"]):
        client.begin_transaction()
        client.produce("transactions", value=json.dumps({"n": number}))
        assert client.flush(CLIENT_SECONDS) == 0
        getattr(client, f"{ending}_transaction")(CLIENT_SECONDS)


def aborted_transaction(session, _):
    session.expect("transactions", ["n"], [{"n": 0}, {"n": 2}])


def fill_folded(floe):
    for number in range(LOOKS):
        send(floe, "folded", [json.dumps({"n": number, f"only_{number % 3}": str(number), "o": {f"m{number % 2}": number}})])
        look(floe, "folded")
    for _ in range(FOLD_SECONDS):
        if "replace" in [snapshot["summary"]["operation"] for snapshot in look(floe, "folded")["snapshots"]]:
            return
        time.sleep(1)
    raise AssertionError("the table is not folded in time")


def folded_table(session, _):
    rows = [{"n": number, f"only_{number % 3}": str(number)} for number in range(LOOKS)]
    session.expect("folded", ["n", "only_0", "only_1", "only_2"], rows)
    session.expect("folded", ["n"], [{"n": 20}, {"n": 23}], "n >= 18 AND only_2 IS NOT NULL")


def folded_objects(session, _):
    """Of a column whose members came one after the other."""
    session.expect("folded", ["o"], [{"o": {f"m{number % 2}": number}} for number in range(LOOKS)])


def sent_a_moment_ago(session, floe):
    """One session asks again and again; each time it sees what was acknowledged in between."""
    topic, rows = f"fresh_{session.engine.lower()}", []
    for number in range(ROUNDS):
        send(floe, topic, [json.dumps({"n": number})])
        rows.append({"n": number})
        session.expect(topic, ["n"], rows)


def columns_of_a_moment_ago(session, floe):
    """As before, and each record brings a column that none before it had."""
    topic, rows = f"growing_{session.engine.lower()}", []
    for number in range(ROUNDS):
        send(floe, topic, [json.dumps({f"k{number}": number})])
        rows.append({f"k{number}": number})
        session.expect(topic, [f"k{each}" for each in range(number + 1)], rows)


CHECKS = {
    "columns of the record": columns_of_the_record,
    "headers": headers,
    "tombstone": tombstone,
    "error of a record": error_of_a_record,
    "columns added between commits": columns_added,
    "members added between commits": members_added,
    "files of days, under a filter": days,
    "aborted transaction": aborted_transaction,
    "folded table": folded_table,
    "folded objects": folded_objects,
    "sent a moment ago, in one session": sent_a_moment_ago,
    "columns of a moment ago, in one session": columns_of_a_moment_ago,
}
