"""Fixtures: a Floe and a topic of its own for each test. A failed test shows the broker's log; a skipped one fails the run."""
import os
import pathlib
import shutil
import uuid

import pytest

from kit import Floe


def pytest_configure(config):
    """A missing tool fails here, by name, before any test."""
    binary = os.environ.get("FLOE_BIN", "")
    if not pathlib.Path(binary).is_file():
        raise pytest.UsageError(f"no floe at FLOE_BIN='{binary}': build it, and run the tests by scripts/e2e")
    if shutil.which("kcat") is None:
        raise pytest.UsageError("no kcat on the path: run scripts/tools, and the tests by scripts/e2e")


@pytest.fixture(scope="session", autouse=True)
def duckdb_extensions(tmp_path_factory):
    """DuckDB copies what it installs: into a folder of the run instead of the home folder."""
    os.environ["FLOE_DUCKDB_EXTENSIONS"] = str(tmp_path_factory.mktemp("duckdb"))


@pytest.fixture
def floe(tmp_path, request):
    """A running broker. Whatever the test did to it, it must stop cleanly afterwards if it still runs."""
    broker = Floe(tmp_path)
    request.node.floe = broker
    try:
        yield broker.start()
    except BaseException:
        if broker.process is not None:
            broker.kill9()
        raise
    if broker.process is not None:
        broker.stop()


@pytest.fixture
def topic():
    """A name that no other test has; also the name of its table."""
    return f"t_{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    broker = getattr(item, "floe", None)
    if report.failed and broker is not None:
        report.sections.append((f"floe's log ({broker.log})", broker.log_tail()))
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
