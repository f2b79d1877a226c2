"""What looks leave behind, in simulated time with stores in memory: a table that was looked at often, and tables after an
hour of a query a minute. The durations are CPU alone; a look on a directory takes a PUT and a commit more, as the probes
measure them in the same minute."""
import probes
from clients import percentiles
from examples import run_example

LOOKS, FAST_LOOKS = 20_000, 200
TABLES, FAST_TABLES = 100, 2
PROBES = 100


def run(settings, folder):
    figures = run_example("floe-iceberg-bridge", "looks_bench", "looks", FAST_LOOKS if settings.fast else LOOKS)
    print(f"  {figures}", flush=True)
    first = {key.removeprefix("first_"): value for key, value in figures.items() if key.startswith("first_")}
    last = {key.removeprefix("last_"): value for key, value in figures.items() if not key.startswith("first_")}
    store_ms = sum(percentiles(probe)["p50_ms"] for probe in (
        probes.directory_put_seconds(folder, PROBES), probes.commit_seconds(folder / "probe.db", PROBES)))
    for end in (first, last):
        end["look_ms"] = end["commit_ms"] + store_ms
    return [{"name": f"{figures['looks']:,} looks, a new record each", "rounds": [{"floe": last, "first": first}]}]


def run_hour(settings, _):
    figures = run_example("floe-iceberg-bridge", "looks_bench", "hour", FAST_TABLES if settings.fast else TABLES)
    print(f"  {figures}", flush=True)
    return [{"name": f"{figures['tables']} tables, a record a second, a look a minute", "rounds": [{"floe": figures}]}]
