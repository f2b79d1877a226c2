"""An object store that is reached by TLS: whom the broker trusts, and what it signs."""
import urllib.parse

import pytest

from gate import TlsGate
from kit import S3, Floe, read_all, send
from test_refusals import refusal


@pytest.fixture
def gate():
    made = TlsGate(urllib.parse.urlsplit(S3().endpoint).port)
    yield made
    made.close()


def store_behind(gate):
    """(settings, environment) of a Floe on the S3 store behind a gate."""
    store = S3()
    settings = {name: value for name, value in store.settings.items() if name != "store.allow_http"}
    return settings | {"store.endpoint": gate.url("https")}, store.environment


def test_a_store_by_tls_is_used_and_its_uploads_are_not_signed(gate, tmp_path, topic, request):
    settings, environment = store_behind(gate)
    floe = Floe(tmp_path, settings, environment | {"SSL_CERT_FILE": str(gate.authority)})
    request.node.floe = floe
    floe.start()
    try:
        before = gate.unsigned
        send(floe, topic, [b"by TLS"])
        assert gate.unsigned > before, "an upload's bytes are hashed once more, for nothing"
        floe.restart()
        assert [record.value() for records in read_all(floe, topic).values() for record in records] == [b"by TLS"]
        floe.stop()
    finally:
        if floe.process is not None:
            floe.kill9()


def test_a_store_whose_authority_is_unknown_is_refused_with_the_reason(gate, tmp_path):
    settings, environment = store_behind(gate)
    flags = ["--store", settings.pop("store.url")]
    for name, value in settings.items():
        flags += ["--set", f"{name}={value}"]
    said = refusal(tmp_path, *flags, **environment)
    assert "object store probe, writing" in said and "certificate" in said.lower(), said
