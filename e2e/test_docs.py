"""The README shows what was measured: its tables are made from the results, not by hand."""
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_the_readme_shows_the_results_of_the_benches():
    done = subprocess.run([ROOT / "benches" / "table", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
