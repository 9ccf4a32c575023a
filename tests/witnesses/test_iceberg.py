"""Iceberg's reference implementation, in Java, reads a table that a run has made and added to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import duckdb
import pytest
from lakehouse.catalogs import lake
from processes import command
from witness_clients import Missing, java_reader

ROW = (
    "row|1|true|-32768|2147483647|1.5|0.1|1234567890123456789012345678.0123456789|-999.99|"
    "123456789012345.678|ä\U0001f600'|00ff|0001-01-01|23:59:59.999999|1582-10-04T01:02:03.000001|"
    "2026-03-29T01:30:00.123456Z|-128"
)


@pytest.mark.long("a reader in Java")
def test_java_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of all types, nulls, and each branch: by the ids of columns, and nothing of pyiceberg."""
    try:
        reader = java_reader("ReadTable")
    except Missing as missing:
        pytest.skip(f"no reader of Iceberg: {missing}")
    made = lake(tmp_path)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            "CREATE TABLE t (id BIGINT, flag BOOLEAN, small SMALLINT, int INTEGER, real FLOAT, "
            "dbl DOUBLE, dec DECIMAL(38, 10), short DECIMAL(5, 2), mid DECIMAL(18, 3), txt "
            "VARCHAR, bin BLOB, dy DATE, tm TIME, ts TIMESTAMP, tz TIMESTAMPTZ, tiny TINYINT)"
        )
        connection.execute(
            "INSERT INTO t VALUES (1, true, -32768, 2147483647, 1.5, 0.1, "
            "1234567890123456789012345678.0123456789, -999.99, 123456789012345.678, 'ä\U0001f600''', "
            "'\\x00\\xFF'::BLOB, '0001-01-01', '23:59:59.999999', '1582-10-04 01:02:03.000001', "
            "'2026-03-29 01:30:00.123456+00', -128)"
        )
        connection.execute("INSERT INTO t (id) VALUES (2)")
    asked = ("run", f"duckdb://{tmp_path / 't.duckdb'}", "--table", "t", "--format", "parquet")
    asked = (*asked, "--to", "iceberg://lake/ns.t")
    command.run(*asked)
    command.run(*asked, "--save-mode", "append", "--branch", "audit")
    metadata = made.table("t").metadata_location.removeprefix("file://")
    nulls = "row|2" + "|null" * 15
    for branch, times in (("main", 1), ("audit", 2)):
        done = subprocess.run(
            [*reader, metadata, branch], capture_output=True, text=True, check=True, timeout=170
        )
        lines = done.stdout.splitlines()
        assert sorted(each for each in lines if each[:3] == "row") == sorted([ROW, nulls] * times)
        runs = [each.split()[1] for each in lines if each.startswith("snapshot ")]
        assert sorted(runs) == sorted(made.runs("t", "audit"))


@pytest.mark.long("a program in Java")
def test_java_rewrites_and_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewritten table has the rows of each run in other files: `verify` names the snapshot."""
    try:
        program = java_reader("MaintainTable")
    except Missing as missing:
        pytest.skip(f"no program over Iceberg: {missing}")
    made = lake(tmp_path)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT i, 'v' || i AS v FROM range(1000) r(i)")
    asked = ("run", f"duckdb://{tmp_path / 't.duckdb'}", "--table", "t", "--format", "parquet")
    asked = (*asked, "--to", "iceberg://lake/ns.t", "--save-mode")
    command.run(*asked, "create")
    command.run(*asked, "append")
    place = (str(tmp_path / "catalog.db"), f"file://{tmp_path / 'wh'}")
    done = subprocess.run(
        [*program, *place, "ns", "t"], capture_output=True, text=True, check=True, timeout=170
    )
    command.run(*asked, "append")
    *rewritten, last = [home for home in made.homes("t") if home.is_dir()]
    assert json.loads(command.run("verify", str(last), "--json"))["table_log"]["changes"] == []
    assert len(rewritten) == 2
    for home in rewritten:
        assert not list(home.glob("*.parquet"))
        answer = json.loads(command.run("verify", str(home), "--json"))
        (change,) = answer["table_log"]["changes"]
        assert (change["snapshot"], change["operation"]) == (done.stdout.strip(), "replace")
        assert (change["removed_rows"], change["added_rows"]) == (2000, 2000)
        assert change["keeps_rows"]
        assert answer["table_log"]["missing_files"] == change["files"]
        assert answer["table_log"]["rows"] == 1000
