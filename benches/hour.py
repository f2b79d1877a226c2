"""What an hour of small produces leaves in the log, and what a fetch costs in a log of some size: an example of the log,
in simulated time with stores in memory. Catching up and fetching are measured in real time, without clients."""
from examples import run_example

SECONDS, FAST_SECONDS = 3_600, 20
GIB_EXTENTS, FAST_GIB_EXTENTS = 1_024, 8


def run(settings, _):
    found = run_example("floe-log", "an_hour", "written", FAST_SECONDS if settings.fast else SECONDS)
    print(f"  {found}", flush=True)
    return [
        {"name": f"{each['store']}, {each['seconds']:,} s", "rounds": [{"floe": each["hour"], "full_segments": each["full"]}]}
        for each in found]


def run_fetch_cost(settings, _):
    rounds = [run_example("floe-log", "an_hour", "fetch", FAST_GIB_EXTENTS if settings.fast else GIB_EXTENTS)
              for _ in range(settings.rounds)]
    print(f"  {rounds}", flush=True)
    return [{"name": kinds[0]["kind"], "rounds": [
        {"floe": {"fetch_us": each["large_us"]}, "one_gib": {"fetch_us": each["small_us"]}} for each in kinds]}
        for kinds in zip(*rounds, strict=True)]
