"""A broker that cannot start says why, soon, and exits with an error."""
import os
import subprocess

from kit import free_ports, send

REFUSAL_SECONDS = 20


def refusal(folder, *flags, host="127.0.0.1", **environment):
    """What a broker says on standard error that does not start; host: where it is to listen for Kafka clients."""
    kafka, http = free_ports(2)
    addresses = ["--kafka", f"{host}:{kafka}", "--http", f"127.0.0.1:{http}"]
    command = [os.environ["FLOE_BIN"], "serve", "--data", folder, *addresses, *flags]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOE_")}
    done = subprocess.run(command, env=kept | environment, capture_output=True, text=True, timeout=REFUSAL_SECONDS)
    assert done.returncode not in (0, -9), done
    return done.stderr


def test_an_unreachable_object_store_is_named_with_the_reason(tmp_path):
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    flags = ["--store", "s3://nowhere/x"]
    for setting in (f"store.endpoint={endpoint}", "store.region=us-east-1", "store.allow_http=true"):
        flags += ["--set", setting]
    said = refusal(tmp_path, *flags, FLOE_STORE_ACCESS_KEY="key", FLOE_STORE_SECRET_KEY="secret")
    assert "object store probe, writing" in said and "s3://nowhere/x" in said, said
    assert "cannot be reached" in said and endpoint in said, said


def test_an_unreachable_metadata_store_is_named_with_the_reason(tmp_path):
    (port,) = free_ports(1)
    said = refusal(tmp_path, "--metadata", f"postgres://floe@127.0.0.1:{port}/floe")
    assert "refused" in said.lower() and "postgres" in said.lower(), said


def test_a_second_broker_on_the_same_metadata_says_who_has_it(floe):
    said = refusal(floe.data)
    assert "in use by another floe" in said and str(floe.process.pid) in said, said
    send(floe, "still", [b"served"])


def test_an_unknown_setting_is_answered_with_the_nearest(tmp_path):
    said = refusal(tmp_path, "--set", "kafka.num.partitons=3")
    assert "did you mean kafka.num.partitions?" in said, said


def test_an_address_that_others_reach_needs_consent(tmp_path):
    said = refusal(tmp_path, host="0.0.0.0")
    assert "--insecure-listen" in said, said
