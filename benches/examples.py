"""Benches that are Rust programs: examples of the crates, built in release, which print JSON."""
import json
import subprocess

from results import ROOT


def run_example(package, name, *arguments):
    """Builds and runs an example; returns what it printed."""
    command = ["cargo", "run", "--release", "--locked", "--quiet", "-p", package, "--example", name, "--"]
    done = subprocess.run(
        [*command, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)
