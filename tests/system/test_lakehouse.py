"""Runs into Iceberg tables: one commit for each run, also after kills and beside other writers."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from lakehouse.catalogs import Lake, receipt_of, rows_of_files, rows_of_log, rows_of_table
from object_stores.s3_server import S3Server
from processes import command
from processes.breaking import held_behind

ROWS = 1000

UNITS = ("--unit-bytes", "8kB", "--parallelism", "1")
"""Several work units, so that a run can be held between them."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 1,000 rows, one of none and one of all types in a DuckDB file; return its URL."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, DATE '2026-01-01' + (i // 500)::int AS dy, 'v' || i AS v "
            f"FROM range({ROWS}) r(i)"
        )
        connection.execute("CREATE TABLE nothing AS FROM t LIMIT 0")
        connection.execute(
            "CREATE TABLE kinds (id BIGINT NOT NULL, flag BOOLEAN, small SMALLINT, int INTEGER, "
            "real FLOAT, dbl DOUBLE, dec DECIMAL(38, 10), short DECIMAL(5, 2), txt VARCHAR, "
            "bin BLOB, dy DATE, tm TIME, ts TIMESTAMP, tz TIMESTAMPTZ)"
        )
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            "INSERT INTO kinds VALUES "
            "(1, true, -32768, 2147483647, 1.5, 0.1, 1234567890123456789012345678.0123456789, "
            " -999.99, 'ä\U0001f600''\n', '\\x00\\xFF'::BLOB, '0001-01-01', '23:59:59.999999', "
            " '1582-10-04 01:02:03.000001', '2026-03-29 01:30:00.123456+00'), "
            "(2, false, 32767, -2147483648, 'nan', '-inf', -0.0000000001, 0.01, '', ''::BLOB, "
            " '9999-12-31', '00:00:00', '9999-12-31 23:59:59.999999', '1970-01-01 00:00:00+00'), "
            "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
        )
    return f"duckdb://{path}"


def run(source: str, *options: str, table: str = "t", to: str = "t") -> tuple[str, ...]:
    """Return the run of a table into one of the lake."""
    where = ("--to", f"iceberg://lake/ns.{to}", "--format", "parquet")
    return ("run", source, "--table", table, *where, *options)


def test_a_table_is_made_and_read_by_two(source: str, the_lake: Lake) -> None:
    """All types are exact for two readers; the commit says where its rows are from."""
    command.run(*run(source, table="kinds", to="kinds"))
    table = the_lake.table("kinds")
    with duckdb.connect(source.removeprefix("duckdb://"), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        wanted = connection.execute("FROM kinds ORDER BY ALL").fetchall()
        types = [str(each[1]) for each in connection.execute("DESCRIBE kinds").fetchall()]
    assert [repr(row) for row in rows_of_files(table)] == [repr(row) for row in wanted]
    read = rows_of_table(table)
    assert [_comparable(row) for row in read] == [_comparable(row) for row in wanted]
    assert len(types) == len(table.schema().fields) == 14
    assert [str(each.field_type) for each in table.schema().fields] == [
        *("long", "boolean", "int", "int", "float", "double", "decimal(38, 10)", "decimal(5, 2)"),
        *("string", "binary", "date", "time", "timestamp", "timestamptz"),
    ]
    _check_properties(table, command.manifest_of(the_lake.home("kinds")), source)


def _comparable(row: tuple[Any, ...]) -> list[str]:
    return [
        str(value.astimezone()) if hasattr(value, "tzinfo") and value.tzinfo else repr(value)
        for value in row
    ]


def _check_properties(table: Any, manifest: dict[str, Any], source: str) -> None:
    had = table.current_snapshot().summary.additional_properties
    assert had["unloader.run-id"] == manifest["run_id"]
    assert had["unloader.source-kind"] == "duckdb"
    assert had["unloader.source"] == manifest["source"]["location"]
    assert had["unloader.snapshot"] == manifest["snapshot"]["value"]
    assert had["unloader.plan-digest"] == manifest["plan"]["digest"]
    assert had["unloader.rows"] == "3"
    assert manifest["lake_table"]["field_ids"] == list(range(1, 15))


@pytest.mark.long("runs into tables of a lakehouse")
def test_rows_are_added_and_replaced(source: str, the_lake: Lake) -> None:
    """Append adds in several files, overwrite replaces all, or what whole files hold."""
    command.run(*run(source, "--where", "i < 500"))
    command.run(*run(source, "--where", "i >= 500", "--save-mode", "append", "--file-size", "1kB"))
    assert len(rows_of_files(the_lake.table("t"))) == ROWS
    command.run(*run(source, "--save-mode", "append", table="nothing"))
    before = the_lake.runs("t")
    assert len(set(before)) == 3
    replaced = ("--save-mode", "overwrite", "--replace-where", "dy = '2026-01-01'")
    error = command.error_of(*run(source, *replaced), status=6)
    assert "do not meet --replace-where" in error
    command.run("clean", "iceberg://lake/ns.t")
    command.run(*run(source, *replaced, "--where", "i < 100"))
    table = the_lake.table("t")
    assert [row[0] for row in rows_of_table(table)] == [*range(100), *range(500, 1000)]
    assert table.current_snapshot().summary.operation.value == "overwrite"
    mixed = ("--save-mode", "overwrite", "--replace-where", "i < 50")
    assert "both rows that meet" in command.error_of(*run(source, *mixed), status=6)
    command.run(*run(source, "--save-mode", "overwrite", "--where", "i < 7"))
    assert [row[0] for row in rows_of_files(the_lake.table("t"))] == list(range(7))
    assert len(set(the_lake.runs("t"))) == 5


@pytest.mark.long("runs into tables of a lakehouse")
def test_a_branch_is_written_and_main_stays(source: str, the_lake: Lake) -> None:
    """A commit to a branch is not visible on main."""
    assert "--save-mode append" in command.error_of(*run(source, "--branch", "audit"), status=2)
    command.run(*run(source))
    command.run(*run(source, "--branch", "audit", "--save-mode", "append"))
    command.run(*run(source, "--branch", "audit", "--save-mode", "append"))
    table = the_lake.table("t")
    assert [len(rows_of_files(table, branch=each)) for each in ("main", "audit")] == [1000, 3000]
    fewer = ("--save-mode", "overwrite", "--where", "i < 5")
    command.run(*run(source, "--branch", "audit", *fewer))
    table = the_lake.table("t")
    assert [len(rows_of_files(table, branch=each)) for each in ("main", "audit")] == [1000, 5]


@pytest.mark.long("runs into tables of a lakehouse")
def test_what_does_not_fit_is_refused_before_a_row_is_read(source: str, the_lake: Lake) -> None:
    """Other columns, other types, and a table that is there: nothing is written, nothing stays."""
    command.run(*run(source))
    asked = ("run", source, "--to", "iceberg://lake/ns.t", "--format", "parquet", "--save-mode")
    for query, mode, said in (
        ("SELECT i FROM t", "append", "its column 'dy' is not in the files"),
        ("SELECT *, 1 AS more FROM t", "overwrite", "it has no column 'more'"),
        ("SELECT i, dy, v AS V FROM t", "append", "it has no column 'V', but 'v'"),
        ("SELECT i::INT AS i, dy, v FROM t", "append", "'i' is long instead of int"),
        ("SELECT i FROM t", "create", "already"),
    ):
        assert said in command.error_of(*asked, mode, "--query", query, status=6)
    assert len(the_lake.homes("t")) == len(the_lake.runs("t")) == 1


@pytest.mark.long("runs into tables of a lakehouse")
@pytest.mark.parametrize(
    ("column", "hint"),
    [("1::UBIGINT", "--as-text 'x'"), ("1::UINTEGER", "--exclude 'x'"), ("[1, 2]", "x")],
)
def test_a_type_that_no_table_holds_is_refused(
    source: str, the_lake: Lake, column: str, hint: str
) -> None:
    """It names the column, and the option that decides."""
    where = ("--to", "iceberg://lake/ns.t", "--format", "parquet")
    error = command.error_of("run", source, "--query", f"SELECT {column} AS x", *where, status=6)
    assert "column 'x'" in error
    assert hint in error
    assert not the_lake.homes("t")


@pytest.mark.long("runs into tables of a lakehouse")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--to", "iceberg://lake/t"), "iceberg://CATALOG/NAMESPACE.TABLE"),
        (("--format", "csv"), "--format parquet"),
        (("--overwrite",), "--save-mode overwrite"),
        (("--replace-where", "i = 1"), "--save-mode overwrite"),
        (("--save-mode", "append", "--to", "/tmp/x"), "is not a table"),
        (("--to", "iceberg://lake/ns.t,/tmp/x"), "alone"),
    ],
)
def test_options_that_do_not_go_with_a_table(
    source: str, the_lake: Lake, options: tuple[str, ...], said: str
) -> None:
    """Each is refused with what to give in its place."""
    given = run(source)
    for name in ("--to", "--format"):
        if name in options:
            at = given.index(name)
            given = (*given[:at], *given[at + 2 :])
    assert said in command.error_of(*given, *options, status=2)


@pytest.mark.long("runs into tables of a lakehouse")
def test_two_processes_append_at_the_same_time(source: str, the_lake: Lake) -> None:
    """Each run is committed, once, and no row is lost: conflicts are tried again."""
    command.run(*run(source))
    writers = [command.Forked(*run(source, "--save-mode", "append")) for _ in range(3)]
    for each in writers:
        status, _, errors = each.finish()
        assert status == 0, errors
    assert len(set(the_lake.runs("t"))) == len(the_lake.runs("t")) == 4
    assert len(rows_of_files(the_lake.table("t"))) == 4 * ROWS


@pytest.mark.long("runs into tables of a lakehouse")
def test_a_table_that_has_changed_is_not_overwritten(
    source: str, the_lake: Lake, tmp_path: Path
) -> None:
    """A commit of another program during the run stays; the run reports it."""
    command.run(*run(source))
    gate = tmp_path / "gate"
    gate.touch()
    held = held_behind(0, gate)
    late = command.Forked(*run(source, *UNITS, "--save-mode", "overwrite"), env=held)
    late.wait_until(lambda: len(the_lake.homes("t")) == 2, "its own place")
    late.wait_until((the_lake.homes("t")[-1] / "_run" / "run.json").exists, "its record")
    command.run(*run(source, "--save-mode", "append"))
    gate.unlink()
    status, _, errors = late.finish()
    assert status == 6
    assert "was changed after" in errors
    assert len(rows_of_files(the_lake.table("t"))) == 2 * ROWS
    command.run("clean", "iceberg://lake/ns.t")
    assert len(the_lake.homes("t")) == 2


@pytest.mark.long("runs into tables of a lakehouse")
@pytest.mark.parametrize(
    ("how", "again"),
    [("EXCLUSIVE", "resume"), ("IMMEDIATE", "run"), ("IMMEDIATE", "clean")],
    ids=["before it", "within it", "within it, not wanted"],
)
def test_a_run_that_is_killed_at_its_commit(
    source: str, the_lake: Lake, tmp_path: Path, how: str, again: str
) -> None:
    """It is complete and not committed; the next command commits it once, or removes it."""
    command.run(*run(source))
    gate = tmp_path / "gate"
    gate.touch()
    asked = run(source, *UNITS, "--save-mode", "append")
    running = command.Forked(*asked, env=held_behind(0, gate))
    running.wait_until(lambda: len(the_lake.homes("t")) == 2, "its own place")
    home = the_lake.homes("t")[-1]
    running.wait_until((home / "_run" / "run.json").exists, "its record")
    with the_lake.held(how):
        gate.unlink()
        running.wait_until((home / "_committing.json").exists, "the begin of its commit")
        _kill(running)
    assert len(the_lake.runs("t")) == 1
    if again == "run":
        assert "unloader resume" in command.error_of(*asked, status=6)
        command.run(*asked, "--resume-or-start")
    else:
        command.run(again, "iceberg://lake/ns.t")
    more = 1 if again == "clean" else 2
    assert len(the_lake.runs("t")) == more
    assert len(rows_of_files(the_lake.table("t"))) == more * ROWS
    command.run(*asked)
    assert len(rows_of_table(the_lake.table("t"))) == (more + 1) * ROWS


@pytest.mark.long("runs into tables of a lakehouse")
def test_a_run_that_was_killed_behind_its_commit(source: str, the_lake: Lake) -> None:
    """The table reports the run, so that it is not committed again, although its receipt lacks."""
    command.run(*run(source))
    command.run(*run(source, "--save-mode", "append"))
    home = the_lake.home("t")
    receipt = receipt_of(home)
    (home / "_committed.json").unlink()
    command.run("resume", str(home))
    assert receipt_of(home) == receipt
    (home / "_committed.json").unlink()
    command.run("clean", str(home))
    assert len(rows_of_files(the_lake.table("t"))) == 2 * ROWS


@pytest.mark.long("runs into tables of a lakehouse")
def test_a_table_that_has_forgotten_is_not_written_twice(source: str, the_lake: Lake) -> None:
    """With expired snapshots earlier commits are unknown, so the commit is refused."""
    command.run(*run(source))
    for _ in range(2):
        command.run(*run(source, "--save-mode", "append"))
    home = the_lake.homes("t")[1]
    (home / "_committed.json").unlink()
    table = the_lake.table("t")
    current = table.current_snapshot().snapshot_id
    old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != current]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert "it is unknown whether" in command.error_of("resume", str(home), status=6)
    assert "it is unknown whether" in command.error_of("clean", str(home), status=6)
    assert len(rows_of_files(the_lake.table("t"))) == 3 * ROWS


@pytest.mark.parametrize("options", [(), ("--new-snapshot",)], ids=["resumed", "anew"])
@pytest.mark.long("runs into tables of a lakehouse")
def test_a_run_that_is_killed_while_it_reads_is_gone_on_with(
    source: str, the_lake: Lake, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Before its files are complete it is a broken run as on a disk, found by the table's name."""
    gate = tmp_path / "gate"
    gate.touch()
    running = command.Forked(*run(source, *UNITS), env=held_behind(0, gate))
    running.wait_until(lambda: bool(the_lake.homes("t")), "its own place")
    running.wait_until((the_lake.home("t") / "_run" / "run.json").exists, "its record")
    _kill(running)
    gate.unlink()
    shown = json.loads(command.ended("status", "iceberg://lake/ns.t", "--json").stdout)
    assert shown["state"] == "interrupted"
    command.run("resume", "iceberg://lake/ns.t", *options)
    assert len(the_lake.runs("t")) == 1
    command.run("verify", str(the_lake.home("t")), source)
    assert len(rows_of_files(the_lake.table("t"))) == ROWS


@pytest.mark.long("runs into object stores")
def test_a_warehouse_in_an_object_store(
    source: str, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files go where the catalog says, with its endpoint; Delta tables likewise."""
    made = Lake(tmp_path, warehouse=f"s3://{s3.bucket}/wh")
    more = {"S3__ENDPOINT": s3.endpoint, "S3__REGION": "us-east-1"}
    for name, value in (*made.env.items(), *more.items()):
        monkeypatch.setenv(name if name in made.env else f"PYICEBERG_CATALOG__LAKE__{name}", value)
    options = {"s3.endpoint": s3.endpoint, "s3.region": "us-east-1"}
    made.open(**options).create_namespace("ns")
    place = s3.place("delta")
    for mode, number in (("create", 1), ("append", 2), ("overwrite", 1)):
        command.run(*run(source, "--save-mode", mode, *UNITS))
        table = made.open(**options).load_table("ns.t")
        assert table.scan().to_arrow().num_rows == number * ROWS
        delta = ("--to", f"delta:{place}", "--format", "parquet", "--save-mode", mode)
        command.run("run", source, "--table", "t", *delta)
    command.run("verify", "iceberg://lake/ns.t", source)
    log = [name for name in s3.objects("delta/") if name.startswith("_delta_log/")]
    assert len(log) == 3
    for base in ("wh/ns/t/data", "delta"):
        files = sorted(name for name in s3.objects(f"{base}/") if name.endswith(".parquet"))
        home = files[0].partition("/")[0]
        replaced = [name for name in files if name.startswith(f"{home}/")]
        for name in replaced:
            s3.client().delete_object(Bucket=s3.bucket, Key=f"{base}/{name}")
        answer = json.loads(command.run("verify", s3.place(f"{base}/{home}"), "--json"))
        (change,) = answer["table_log"]["changes"]
        assert not change["keeps_rows"]
        assert answer["table_log"]["rows"] == ROWS
        assert [f"{home}/{name}" for name in answer["table_log"]["missing_files"]] == replaced


def _kill(running: command.Running) -> None:
    workers = running.workers()
    with suppress(ProcessLookupError):
        os.killpg(running.process.pid, signal.SIGKILL)
    for each in workers:
        with suppress(Exception):
            each.kill()
    running.process.communicate()


@pytest.mark.long("runs into tables of a lakehouse")
def test_a_delta_table_by_all_modes(source: str, tmp_path: Path) -> None:
    """Made, appended to by parallel runs, overwritten; each run once, exact for two readers."""
    root = tmp_path / "a table"
    place = ("--to", f"delta:{root}", "--format", "parquet")
    command.run("run", source, "--table", "kinds", "--exclude", "tm", *place)
    with duckdb.connect(source.removeprefix("duckdb://"), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        wanted = connection.execute("SELECT * EXCLUDE (tm) FROM kinds ORDER BY ALL").fetchall()
    assert [repr(row) for row in rows_of_log(root)] == [repr(row) for row in wanted]
    again = ("run", source, "--table", "kinds", "--exclude", "tm", *place, "--save-mode")
    writers = [command.Forked(*again, "append") for _ in range(3)]
    for each in writers:
        status, _, errors = each.finish()
        assert status == 0, errors
    assert len(rows_of_log(root)) == 4 * len(wanted)
    newest = max(path for path in root.iterdir() if path.name[0] not in "._")
    (newest / "_committed.json").unlink()
    command.run("resume", str(newest))
    assert len(rows_of_log(root)) == 4 * len(wanted)
    error = command.error_of(
        "run", source, "--table", "t", *place, "--save-mode", "append", status=6
    )
    assert "it has no column 'i'" in error
    command.run(*again, "overwrite", "--where", "id < 3")
    assert len(rows_of_log(root)) == 2
    assert "already exists" in command.error_of(*again, "create", status=6)
