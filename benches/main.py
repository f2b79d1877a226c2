"""Runs the benches that are named, all by default, and writes their results; benches/run prepares what they need."""
import contextlib
import os
import pathlib
import signal
import sys
import tempfile

import bridge
import encode
import groups
import hour
import large_transaction
import latency
import look
import many_looks
import many_partitions
import put_requests
import remote
import results
import slow_tables
import start
import table_cost
import throughput
import transactions
from settings import Settings

BENCHES = {
    "throughput": throughput.run, "throughput_s3": throughput.run_s3, "latency": latency.run, "remote": remote.run,
    "requests": put_requests.run, "requests_slowly": put_requests.run_slowly, "look": look.run,
    "many_looks": many_looks.run, "table_hour": many_looks.run_hour, "encode": encode.run, "bridge": bridge.run,
    "slow_tables": slow_tables.run, "table_cost": table_cost.run, "hour": hour.run, "fetch_cost": hour.run_fetch_cost, "start": start.run,
    "transactions": transactions.run, "large_transaction": large_transaction.run, "groups": groups.run,
    "heartbeats": groups.run_heartbeats, "many_partitions": many_partitions.run,
}


def main(names):
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"benches: {', '.join(unknown)}: known are {', '.join(BENCHES)}")
    # Being ended must still stop the brokers.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    settings = Settings.from_environment(os.environ)
    for name in names or BENCHES:
        print(f"== {name}", flush=True)
        with contextlib.ExitStack() as cleanup:
            # In the checkout: a folder for temporary files may lie in memory.
            here = pathlib.Path(__file__).resolve().parent.parent
            folder = tempfile.TemporaryDirectory(prefix="bench-", dir=here / ".tools")
            rows = BENCHES[name](settings, pathlib.Path(cleanup.enter_context(folder)))
        results.report(name, settings, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
