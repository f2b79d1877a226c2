"""How much the benches do, by environment."""
import dataclasses

MIB = 1 << 20
FULL_ROUNDS = 5
FAST_ROUNDS = 2


@dataclasses.dataclass(frozen=True)
class Settings:
    """rounds: of each bench; fast: tiny sizes, results are shown and not kept.

    throughput_bytes: records of one run; latency_records: of one run; probe_writes: of one fsync probe;
    request_bytes: records of one run that counts requests; idle_seconds: how long an idle broker is watched.
    """

    rounds: int
    fast: bool
    throughput_bytes: int
    latency_records: int
    probe_writes: int
    request_bytes: int
    idle_seconds: int

    @classmethod
    def from_environment(cls, environment):
        fast = environment.get("FAST") == "1"
        rounds = int(environment.get("ROUNDS") or (FAST_ROUNDS if fast else FULL_ROUNDS))
        if fast:
            return cls(rounds, fast, 64 * MIB, 500, 100, 8 * MIB, 2)
        return cls(rounds, fast, 256 * MIB, 2_000, 300, 4096 * MIB, 10)
