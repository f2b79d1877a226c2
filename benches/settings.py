"""How much the benches do, by environment."""
import dataclasses

MIB = 1 << 20
FULL_ROUNDS = 5
FAST_ROUNDS = 2


@dataclasses.dataclass(frozen=True)
class Settings:
    """rounds: of each bench; fast: tiny sizes, results are shown and not kept; s3: throughput on an S3 store too.

    throughput_bytes: records of one run; latency_records: of one run; probe_writes: of one fsync probe;
    request_seconds: of one run at a given rate; idle_seconds: how long an idle broker is watched.
    """

    rounds: int
    fast: bool
    s3: bool
    throughput_bytes: int
    latency_records: int
    probe_writes: int
    request_seconds: int
    idle_seconds: int

    @classmethod
    def from_environment(cls, environment):
        fast = environment.get("FAST") == "1"
        rounds = int(environment.get("ROUNDS") or (FAST_ROUNDS if fast else FULL_ROUNDS))
        s3 = environment.get("S3") == "1"
        if fast:
            return cls(rounds, fast, s3, 64 * MIB, 500, 100, 5, 2)
        return cls(rounds, fast, s3, 256 * MIB, 2_000, 300, 10, 10)
