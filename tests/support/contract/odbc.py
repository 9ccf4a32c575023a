"""Connection strings for the databases of tests, by the names of Debian's ODBC drivers."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from urllib.parse import parse_qs, unquote, urlsplit

import pytest


def needs(driver: str) -> None:
    """Skip the test where the library or a driver is not installed."""
    if find_spec("arrow_odbc") is None or shutil.which("odbcinst") is None:
        pytest.skip("arrow-odbc or unixODBC is not installed (unixodbc)")
    found = subprocess.run(["odbcinst", "-q", "-d"], capture_output=True, text=True, check=False)
    if f"[{driver}]" not in found.stdout:
        pytest.skip(f"the ODBC driver {driver!r} is not installed")


def of_postgres(url: str) -> str:
    """Return the ODBC URL of a database of a test server."""
    needs("PostgreSQL Unicode")
    parts = urlsplit(url)
    (host,) = parse_qs(parts.query)["host"]
    return (
        f"odbc:Driver={{PostgreSQL Unicode}};Servername={host};"
        f"Database={unquote(parts.path[1:])};UID={parts.username}"
    )


def of_mysql(url: str) -> str:
    """Return the ODBC URL of a database of a test server."""
    needs("MariaDB Unicode")
    parts = urlsplit(url)
    (socket,) = parse_qs(parts.query)["socket"]
    return (
        f"odbc:Driver={{MariaDB Unicode}};SOCKET={socket};DATABASE={unquote(parts.path[1:])};"
        f"UID={parts.username}"
    )


def of_sqlite(path: object) -> str:
    needs("SQLite3")
    return f"odbc:Driver={{SQLite3}};Database={path}"
