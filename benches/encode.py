"""JSON to Parquet on one core: the bridge's encoder, which finds the columns itself, beside the same parser, builders and
Parquet encoder with the columns written by hand; input in memory, the thread's own time."""
from examples import run_example

RECORDS, FAST_RECORDS = 200_000, 5_000


def run(settings, _):
    records = FAST_RECORDS if settings.fast else RECORDS
    found = run_example("floe-iceberg-bridge", "encode_bench", records, settings.rounds)
    print(f"  {found}", flush=True)
    name = f"{records:,} flights of {found['json_bytes_per_record']} bytes"
    return [{"name": name, "rounds": found["rounds"]}]
