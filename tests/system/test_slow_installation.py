"""A run without native libraries: a line with the cost and the way out, and the manifest has it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pytest
from processes import command


@pytest.fixture
def source(tmp_path: Path) -> str:
    """Two small tables in DuckDB."""
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        for name in ("t", "u"):
            connection.execute(f"CREATE TABLE {name} AS SELECT range AS i FROM range(10)")
    return f"duckdb://{tmp_path / 't.duckdb'}"


def lines_and_warnings(source: str, to: Path, *options: str, **env: str) -> tuple[list[str], Any]:
    """Run; return the lines about native libraries on standard error, and a manifest's warnings."""
    place = str(to / "{table}" if options.count("--table") > 1 else to)
    done = command.ended("run", source, *options, "--to", place, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "native libraries" in line]
    manifest = next(iter(sorted(to.rglob("_manifest.json"), key=lambda path: -len(path.parts))))
    return lines, json.loads(manifest.read_text())["warnings"]


@pytest.mark.parametrize(
    ("options", "variable", "title"),
    [
        (("--table", "t"), "UNLOADER_NATIVE_LIBRARY", "text encoder"),
        (("--table", "t", "--table", "u"), "UNLOADER_NATIVE_LIBRARY", "text encoder"),
        (
            ("--table", "t", "--format", "parquet"),
            "UNLOADER_NATIVE_PAGES_LIBRARY",
            "Parquet encoder",
        ),
        (("--table", "t", "--format", "parquet"), "UNLOADER_NATIVE_SUMS_LIBRARY", "checksums"),
    ],
)
def test_a_missing_library_is_reported_once(
    source: str, tmp_path: Path, options: tuple[str, ...], variable: str, title: str
) -> None:
    """One line for a run, for any number of tables; no line where all libraries are there."""
    to = tmp_path / "out"
    lines, warnings = lines_and_warnings(source, to, *options, **{variable: ""})
    assert len(lines) == 1
    assert f"not built: {title} (up to" in lines[0]
    assert "install a C++ compiler" in lines[0]
    assert len(warnings) == 1
    assert f"not built: {title}" in warnings[0]
    assert lines_and_warnings(source, to, *options, "--overwrite") == ([], [])


def test_other_formats_need_no_text_encoder(source: str, tmp_path: Path) -> None:
    """The encoder that the run does not use, or was asked not to use, is not missing."""
    off = {"UNLOADER_NATIVE_LIBRARY": ""}
    parquet = ("--table", "t", "--format", "parquet")
    assert lines_and_warnings(source, tmp_path / "a", *parquet, **off) == ([], [])
    plain = ("--table", "t", "--encoder", "plain")
    assert lines_and_warnings(source, tmp_path / "b", *plain, **off) == ([], [])


def test_postgresql_needs_the_reader_of_copy_data(postgres: Any, tmp_path: Path) -> None:
    """Text then takes another way, with the same rows."""
    url = postgres.database("slow_installation")
    postgres.run("CREATE TABLE t AS SELECT generate_series(1, 10) AS i", url=url)
    lines, warnings = lines_and_warnings(
        url, tmp_path / "slow", "--table", "t", UNLOADER_NATIVE_COPY_LIBRARY=""
    )
    assert len(lines) == len(warnings) == 1
    assert "not built: reader of COPY data (up to 4 times the CPU" in lines[0]
    assert lines_and_warnings(url, tmp_path / "fast", "--table", "t") == ([], [])
    slow, fast = (
        [path.read_bytes() for path in (tmp_path / each).glob("*.csv")] for each in ("slow", "fast")
    )
    assert slow == fast


def test_formats_lists_the_libraries_and_what_to_do(tmp_path: Path) -> None:
    """A library that is missing, or that does not load, is not usable, and a line has the way out."""
    assert "Next:" not in command.ended("formats").stdout
    damaged = tmp_path / "_sums.so"
    damaged.write_text("not a library")
    env = {
        **os.environ,
        "UNLOADER_NATIVE_FETCH_LIBRARY": "",
        "UNLOADER_NATIVE_SUMS_LIBRARY": str(damaged),
    }
    found = json.loads(command.ended("formats", "--json", env=env).stdout)["native_libraries"]
    why = {each["name"]: each["why_not"] for each in found}
    assert len(why) == 6
    assert "switches it off" in why.pop("fetch from Oracle")
    assert "cannot be loaded" in why.pop("checksums")
    assert set(why.values()) == {None}
    assert "Next: install a C++ compiler" in command.ended("formats", env=env).stdout
