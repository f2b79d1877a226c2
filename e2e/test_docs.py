"""The README shows what was measured, its tables made from the results, not by hand; and what it tells a newcomer to type works."""
import os
import pathlib
import re
import subprocess

from kit import CLIENT_SECONDS, duckdb_on

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
