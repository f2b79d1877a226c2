"""The README shows what was measured, its tables made from the results, not by hand; and what it and the page about tables tell one
to type works."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from kit import CLIENT_SECONDS, alter_config, duckdb_on, floe_command, send

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_the_readme_shows_the_results_of_the_benches():
    done = subprocess.run([ROOT / "benches" / "table", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_the_readme_tells_a_newcomer_to_type_works(floe):
    """Its shell commands and its query as they stand there, but for the address."""
    text = (ROOT / "README.md").read_text()
    shell = [line.strip() for line in text.splitlines() if re.match(r"    .*\bkcat -b", line)]
    query, = re.findall(r"^    (SELECT .* FROM lake\.kafka\.numbers;)$", text, re.MULTILINE)
    assert len(shell) == 2, shell
    environment = os.environ | {"PATH": f"{ROOT / '.tools/bin'}:{os.environ['PATH']}"}
    for command in shell:
        command = command.replace("127.0.0.1:9092", floe.kafka)
        done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=CLIENT_SECONDS)
        assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f'{{"number":{number},"square":{{"of":{number}}}}}' for number in range(1, 6)]
    rows = duckdb_on(floe).execute(query).fetchall()
    assert sorted(rows) == [(0, number - 1, number, {"of": number}) for number in range(1, 6)]


# Of the numbered reports those about Kafka's protocol: versions and frames, metadata and topics, producing, fetching, connections.
CASES = {
    94, 95, 97, 98, 100, 101, 103, 104, 106, 107, 109, 110, 112, 113, 115, 116, 118, 119, 121, 122, 124, 125, 127, 128, 130, 131, 133,
    134, 136, 137, 139, 140, 142, 143, 145, 146, 148, 149, 151, 152, 154, 155, 157, 158, 160, 161, 163, 164, 166, 167, 169, 170, 178,
    179,
}


def numbers(text):
    return {int(number) for number in re.findall(r"\d+", text)}


def test_every_reported_case_has_a_test_or_a_reason():
    paths = [*(ROOT / "broker/floe/tests/protocol").glob("*.rs"), ROOT / "e2e/test_compaction.py"]
    tests = [name for path in paths for name in re.findall(r"(?:fn |def test_)(case_[0-9a-z_]+)\(", path.read_text())]
    # The numbers stand before the words: case_160_and_161_the_first_record_...
    tested = set().union(*(numbers(re.match(r"case(_(and|\d+))+", name)[0]) for name in tests))
    rows = re.findall(r"^\| ([\d, ]+) \|", (ROOT / "docs/reported-cases.md").read_text(), re.MULTILINE)
    reasoned = set().union(*map(numbers, rows))
    assert tested | reasoned == CASES, sorted((tested | reasoned) ^ CASES)
    assert not tested & reasoned, f"tested, and said to be without a test: {sorted(tested & reasoned)}"


FLIGHTS = [
    {"carrier": "UA", "arr_delay": 11, "distance": 1400}, {"carrier": "B6", "arr_delay": -18, "distance": 1576},
    {"carrier": "UA", "arr_delay": None, "distance": 200},
]
ORDERS = [
    '{"price":10,"item":{"sku":"a","tags":["new"]}}', '{"price":10.5,"item":{"sku":"b","tags":[]}}', '{"price":', '{"x":1,"x":2}',
]


def indented(text, begins):
    """The indented lines of a page that begin so, without what stands behind a `#`."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [re.sub(r" +# .*", "", line) for line in lines if re.match(begins, line)]


def alter(floe, command):
    """Does what a line of kafka-configs says, by the same call."""
    words = shlex.split(command)
    topic = words[words.index("--topic") + 1]
    change = words[-2]
    assert change in ("--add-config", "--delete-config") and "--alter" in words, command
    name, _, value = words[-1].partition("=")
    assert (change == "--add-config") == bool(value), command
    alter_config(floe, topic, name, value or None)


def test_what_the_page_about_tables_says_works(floe):
    """Each of its lines as it stands there, but for the address."""
    text = (ROOT / "docs" / "tables.md").read_text()
    send(floe, "flights", [json.dumps(flight) for flight in FLIGHTS])
    send(floe, "orders", ORDERS)
    with duckdb_on(floe) as lake:
        answers = {line: lake.sql(line).fetchall() for line in indented(text, "SELECT|DESCRIBE|SHOW")}
    assert len(answers) >= 8, answers
    answer = {key: rows for key in ("avg(arr_delay)", "coalesce", "_kafka_rescued", "_kafka_error", "item.sku")
              for line, rows in answers.items() if key in line}
    assert answer["avg(arr_delay)"] == [("B6", 1, -18.0), ("UA", 2, 11.0)]
    assert sorted(answer["coalesce"], key=str) == [(10.0,), (10.5,), (None,), (None,)]
    assert answer["_kafka_rescued"] == [(3, json.dumps({"record": ORDERS[3]}, separators=(",", ":")))]
    assert [(row[0], bytes(row[2])) for row in answer["_kafka_error"]] == [(2, ORDERS[2].encode())]
    assert sorted(answer["item.sku"]) == [("a", "new"), ("b", None)]
    assert all(answers.values()), answers

    python = indented(text, r"from pyiceberg|catalog = |print\(|import polars")
    script = "\n".join(python).replace("HOST:PORT", floe.http)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=CLIENT_SECONDS)
    assert done.returncode == 0 and "arr_delay" in done.stdout and "B6" in done.stdout, done

    for command in indented(text, "floe tables"):
        if "recover" in command:
            continue  # test_recover.py
        done = floe_command(*shlex.split(command)[1:], "--http", floe.http)
        if "resume" in command:
            assert done.returncode == 1 and "not stopped" in done.stderr, done
        else:
            assert done.returncode == 0 and "kafka.orders" in done.stdout, done

    configs = indented(text, "kafka-configs")
    assert len(configs) == 3, configs
    for command in configs:
        alter(floe, command)
        table, = (table for table in json.loads(floe.get("/v1/tables")[1]) if table["name"] == "kafka.orders")
        assert (table["rescued_rows"], table["undecodable_rows"]) == (1, 1)
    done = floe_command("tables", "describe", "orders", "--http", floe.http)
    assert "retention" in done.stdout, done


def test_what_the_page_about_costs_says_works():
    """Its commands, and the bills that stand below them."""
    text = (ROOT / "docs" / "cost.md").read_text()
    commands = indented(text, "floe cost")
    assert len(commands) == 5, commands
    for command in commands:
        printed = floe_command(*shlex.split(command)[1:]).stdout
        if "--json" in command:
            bill = json.loads(printed)
            assert round(bill["total"], 6) == round(sum(line["dollars"] for line in bill["lines"]), 6)
            continue
        total = re.search(r"^total +([\d,.]+)$", printed, re.MULTILINE)[1]
        shown = text[text.index(f"    {command}\n"):].split("\n## ")[0]
        assert f"**{total}**" in shown or "**" not in shown, command
