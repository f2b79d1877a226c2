"""What the engines are asked: small topics, by rule of iceberg-bridge/MAPPING.md, each with the rows that its records must show.

The rows are computed from the records that were sent, or stand beside them, and never come from an engine.
"""
import dataclasses
import json
import re

BIG = 2**63


@dataclasses.dataclass
class Construct:
    """name: also the topic's, in lower case; values: records' values; columns: what is asked for; rows: what must come, a dict a
    record in the order of offsets, where a member that is null is not there; where: SQL that every engine takes."""

    name: str
    values: list
    columns: list
    rows: list
    where: str = ""

    @property
    def topic(self):
        return re.sub("[^a-z0-9]+", "_", self.name.lower())


def same(name, records, where="", keep=lambda record: True):
    """Records that a table shows as they are. keep: what `where` says, in Python."""
    columns = list(dict.fromkeys(key for record in records for key in record))
    rows = [{key: value for key, value in record.items() if value is not None} for record in records if keep(record)]
    return Construct(name, [json.dumps(record) for record in records], columns, rows, where)


def values(name, found, rows, columns=("x",)):
    """Values of one key `x`, as JSON."""
    return Construct(name, [f'{{"k":1,"x":{value}}}' for value in found], list(columns), rows)


NUMBERS = [{"n": n, "d": n / 4, "t": f"t{n:03}", "odd": n % 2 == 1, "tenth": n if n % 10 == 0 else None} for n in range(200)]

PLAIN = [
    same("integers of 64 bits", [{"n": n} for n in (0, -1, 2**31, 2**53 + 1, BIG - 1, -BIG)]),
    same("fractions", [{"d": d} for d in (1.5, -0.25, 0.1, 1e308, 5e-324, 1e3)]),
    values("whole numbers, then a fraction", ["1", "1.5", "2"], [{"x": 1}, {"x__double": 1.5}, {"x": 2, "x__double": 2.0}],
           ["x", "x__double"]),
    values("integers beyond 64 bits", ["7", str(BIG), "1e999"],
           [{"x": 7}, {"_kafka_rescued": json.dumps({"values": {"/x": BIG}}, separators=(",", ":"))},
            {"_kafka_rescued": '{"values":{"/x":1e999}}'}], ["x", "_kafka_rescued"]),
    same("texts and booleans", [{"s": "2020-01-01", "b": True}, {"s": "", "b": False}, {"s": "true"}]),
    values("types in conflict", ["1", '"a"', "true", '{"y":1}', "[1]"],
           [{"x": 1}, {"x__string": "a"}, {"x__bool": True}, {"x__struct": {"y": 1}}, {"x__list": [1]}],
           ["x", "x__string", "x__bool", "x__struct", "x__list"]),
    values("conflict of plain types", ["1", '"a"', "true"], [{"x": 1}, {"x__string": "a"}, {"x__bool": True}],
           ["x", "x__string", "x__bool"]),
    values("lists that do not fit", ["[1]", "[1.5]", '[1,"a"]'], [{"x": [1]}, {"x__json": "[1.5]"}, {"x__json": '[1,"a"]'}],
           ["x", "x__json"]),
    same("nested objects", [{"o": {"y": y, "in": {"s": f"s{y}", "d": y / 2}}} for y in (1, 2)]),
    values("objects that are missing", ['{"y":1}', "null", '{"y":null}', "{}"], [{"x": {"y": 1}}, {}, {"x": {}}, {"x": {}}]),
    values("nested objects that are missing", ['{"o":{"y":1},"z":1}', '{"z":2}'],
           [{"x": {"o": {"y": 1}, "z": 1}}, {"x": {"z": 2}}]),
    same("lists of numbers", [{"l": [1, 2, BIG - 1], "d": [1.5, 2.0]}, {"l": [3], "d": [0.5]}]),
    same("lists of texts", [{"l": ["a", "", "ü"]}, {"l": ["b"]}]),
    same("lists of lists", [{"l": [[1], [2, 3]]}, {"l": [[4]]}]),
    same("lists with nulls in them", [{"l": [1, None, 3]}, {"l": [None, 4]}]),
    same("empty lists", [{"l": [1]}, {"l": []}]),
    values("lists that are missing", ["[1]", "null"], [{"x": [1]}, {}]),
    same("lists of objects", [{"l": [{"a": 1, "s": "x"}, {"a": 2, "s": "y"}]}, {"l": [{"a": 3, "s": "z"}]}]),
    values("lists of objects that are missing", ['[{"a":1}]', "null"], [{"x": [{"a": 1}]}, {}]),
    same("nulls and missing keys", [{"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"b": "z"}, {"a": 4, "b": None}]),
    same("Unicode", [{"ümläut": "日本", "名": "\U0001f980", "s": "a\u0000b\n\"'\\"}, {"ümläut": "e\u0301", "s": "\u2028"}]),
    Construct("odd names", ['{"a.b":1,"a_b":2,"id":3,"ID":4,"_partition":5,"":6,"_kafka_offset":7,"a b":8,"select":9,"a-b":10}'],
              ["a_b", "a_b__2", "id", "ID__2", "field_partition", "field", "field_kafka_offset", "a b", "select", "a-b"],
              [{"a_b": 1, "a_b__2": 2, "id": 3, "ID__2": 4, "field_partition": 5, "field": 6, "field_kafka_offset": 7, "a b": 8,
                "select": 9, "a-b": 10}]),
    Construct("names with quotes in them", [json.dumps({'q"': 1, "b`": 2, "a'": 3, "s\\": 4, "d$": 5})],
              ['q"', "b`", "a'", "s\\", "d$"], [{'q"': 1, "b`": 2, "a'": 3, "s\\": 4, "d$": 5}]),
    Construct("rescued values", ['{"x":1,"x":2}', '{"k":1,"l":[]}'], ["x", "k", "_kafka_rescued"],
              [{"x": 2, "_kafka_rescued": json.dumps({"record": '{"x":1,"x":2}'}, separators=(",", ":"))},
               {"k": 1, "_kafka_rescued": '{"values":{"/l":[]}}'}]),
    Construct("records that are not JSON", [b"text", b"[1,2]", b"\xff\x00", b"", b'{"a":1}'], ["_kafka_value", "a"],
              [{"_kafka_value": b"text"}, {"_kafka_value": b"[1,2]"}, {"_kafka_value": b"\xff\x00"}, {"_kafka_value": b""},
               {"a": 1}]),
    same("numbers under a filter", NUMBERS, "n > 150 AND n <= 153", lambda row: 150 < row["n"] <= 153),
    same("fractions under a filter", NUMBERS, "d >= 49.5", lambda row: row["d"] >= 49.5),
    same("texts under a filter", NUMBERS, "t >= 't198' OR t = 't003'", lambda row: row["t"] in ("t198", "t199", "t003")),
    same("nulls under a filter", NUMBERS, "tenth IS NOT NULL", lambda row: row["tenth"] is not None),
    Construct("offsets under a filter", [json.dumps(record) for record in NUMBERS], ["n"], [{"n": 7}, {"n": 8}],
              "_kafka_offset >= 7 AND _kafka_offset < 9"),
]
