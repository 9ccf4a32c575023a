"""Packages of extras that are missing: a run says so before it starts anything."""

from __future__ import annotations

import os
import re
import sqlite3
from configparser import ConfigParser
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from processes import command

SETUP = Path(__file__).parents[2] / "setup.cfg"
HIDDEN = """
import sys

class Hiding:
    def __init__(self, inner):
        self.inner = inner

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != {package!r}:
            return self.inner.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.inner, name)

sys.meta_path[:] = [Hiding(each) for each in sys.meta_path]
"""
"""Of `sitecustomize.py`, which Python imports first."""
PARQUET = ("--format", "parquet")
RECIPIENT = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
NOWHERE = "127.0.0.1:9"
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "duckdb": ("duckdb", ("--to", "{dest}")),
    "sqlite": ("adbc_driver_sqlite", ("--to", "{dest}")),
    "sqlite manager": ("adbc_driver_manager", ("--to", "{dest}")),
    "postgresql": ("psycopg", ("--to", "{dest}")),
    "s3": ("obstore", ("--to", "s3://bucket/p")),
    "s3 without boto3": ("boto3", ("--to", f"s3://bucket/p?endpoint=http://{NOWHERE}")),
    "s3 without botocore": ("botocore", ("--to", f"s3://bucket/p?endpoint=http://{NOWHERE}")),
    "gs": ("obstore", ("--to", "gs://bucket/p")),
    "az": ("obstore", ("--to", "az://bucket/p")),
    "iceberg": ("pyiceberg", ("--to", "iceberg://lake/ns.t", *PARQUET)),
    "delta": ("deltalake", ("--to", "delta:{dest}", *PARQUET)),
    "ducklake": ("duckdb", ("--to", "ducklake:{dest}.ducklake/main.t", *PARQUET)),
    "checksum": ("crc32c", ("--to", "{dest}", "--checksum", "crc32c")),
    "metrics": ("prometheus_client", ("--to", "{dest}", "--metrics-file", "{dest}.prom")),
    "traces": ("opentelemetry", ("--to", "{dest}", "--trace", "otlp")),
    "encryption": ("pyrage", ("--to", "{dest}", "--encrypt-to", RECIPIENT)),
    "masking": ("ffx", ("--to", "{dest}", "--mask", "i=ff1,digits=16")),
    "report": ("jinja2", ("--to", "{dest}", "--report", "{dest}.html")),
    "charts": ("vl_convert", ("--to", "{dest}", "--report", "{dest}.html")),
    "cluster": ("distributed", ("--to", "{dest}", "--cluster", f"tcp://{NOWHERE}")),
    "keyring": ("keyring", ("--to", "{dest}", "--password-keyring", "service/user")),
}
"""The package that is missing, and what needs it."""


def extras() -> set[str]:
    """Return the names that `pip install 'unloader[NAME]'` knows."""
    setup = ConfigParser(interpolation=None)
    setup.read(SETUP)
    return set(setup["options.extras_require"])


@pytest.fixture
def sources(tmp_path: Path, postgres: Any) -> dict[str, str]:
    """The URLs of databases with a table `t`."""
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS i, 'x' AS s")
    url = postgres.database("packages")
    postgres.run("CREATE TABLE t AS SELECT 1 AS i, 'x' AS s", url=url)
    file = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS i, 'x' AS s")
    return {"duckdb": f"duckdb://{path}", "sqlite": f"sqlite://{file}", "postgresql": url}


@pytest.mark.parametrize("case", CASES)
def test_a_missing_package_is_named_first(
    case: str, sources: dict[str, str], tmp_path: Path
) -> None:
    """The error has the command that installs it; no unit was tried and no file is left."""
    package, options = CASES[case]
    hiding, dest = tmp_path / "hiding", tmp_path / "dest"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(HIDDEN.format(package=package))
    dest.mkdir()
    source = {"sqlite manager": "sqlite", "ducklake": "sqlite", "keyring": "postgresql"}.get(
        case, case
    )
    done = command.ended(
        *("run", sources.get(source, sources["duckdb"]), "--table", "t", "--progress", "none"),
        *(each.format(dest=dest / "out") for each in options),
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(hiding), os.environ.get("PYTHONPATH", ""))),
            "UNLOADER_MASKING_KEY_DEFAULT": "A" * 43 + "=",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        },
    )
    assert done.returncode in (2, 3), done.stderr
    (extra,) = re.findall(r"pip install 'unloader\[(\w+)\]'", done.stderr)
    assert extra in extras()
    assert package in done.stderr
    assert "attempt" not in done.stderr
    assert list(dest.iterdir()) == []
