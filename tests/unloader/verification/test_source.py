"""`--verify source` and `verify --level source`: the values equal the database's values."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from msgspec.structs import replace

from unloader import api
from unloader.errors import UsageError, VerifyMismatch
from unloader.events import Event, Notice, Verified
from unloader.model import OutputOptions, Request, SeatOptions, Selection, SourceSpec
from unloader.request.names import parse_table
from writers.model import ParquetFormat, TextFormat

DUCKDB = {
    "flag": "CASE WHEN range % 3 > 0 THEN range % 3 = 1 END",
    "small": "(range % 200 - 100)::TINYINT",
    "natural": "(18446744073709551615 - range)::UBIGINT",
    "amount": "(range / 8 - 3)::DECIMAL(12,4)",
    "share": "((range % 9 - 4) / 10)::DECIMAL(5,5)",
    "widest": "((range % 9 - 4) / 7)::DECIMAL(38,37)",
    "huge": "170141183460469231731687303715884105727::HUGEINT - range",
    "single": "CASE range WHEN 0 THEN 'nan' WHEN 1 THEN '-inf' ELSE range / 7 END::FLOAT",
    "double": "CASE range WHEN 0 THEN 'nan' WHEN 1 THEN 'inf' WHEN 2 THEN '-0' "
    "ELSE range / 7e-300 END::DOUBLE",
    "text": "CASE range WHEN 0 THEN '' WHEN 1 THEN NULL ELSE repeat('ä\"~,\n\\', range::INT) END",
    "bytes": "CASE WHEN range > 1 THEN unhex(printf('%04x', range::INT)) END",
    "day": "CASE WHEN range % 2 = 0 THEN DATE '2024-02-28' + range::INT "
    "ELSE DATE '0044-03-15 (BC)' END",
    "stamp": "TIMESTAMP '2024-02-29 23:59:59' + to_microseconds(range * 500)",
    "old": "TIMESTAMP '0044-03-15 (BC) 01:02:03.5'",
    "second": "TIMESTAMP_S '2024-02-29 23:59:59'",
    "finest": "TIMESTAMP_NS '2024-02-29 23:59:59.123456780'",
    "instant": "TIMESTAMPTZ '2024-02-29 23:59:59.5+01:00'",
    "clock": "TIME '23:59:59.25'",
    "id": "md5(range::VARCHAR)::UUID",
    "span": "to_days(range::INT)",
}
UNHASHED = {"list": "[range, NULL]", "pair": "{'a': range}"}
FAR = {
    "far": "CASE range WHEN 0 THEN DATE 'infinity' ELSE DATE '12000-01-01' END",
    "farther": "CASE range WHEN 0 THEN TIMESTAMPTZ '-infinity' "
    "ELSE TIMESTAMPTZ '0044-03-15 (BC) 01:02:03+00' END",
}
POSTGRES = {
    "flag": "CASE WHEN i % 3 > 0 THEN i % 3 = 1 END",
    "small": "(i % 200 - 100)::smallint",
    "whole": "(i * 987654321987)::bigint",
    "object": "(4294967295 - i)::oid",
    "amount": "(i / 8.0 - 3)::numeric(12,4)",
    "share": "((i % 9 - 4) / 10.0)::numeric(5,5)",
    "free": "CASE i WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' ELSE i / 8.0 END::numeric",
    "wide": "(10::numeric ^ 45 + i * 10)::numeric(50,2)",
    "cash": "(i / 4.0)::numeric::money",
    "single": "CASE i WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' ELSE (i / 7.0)::text END::real",
    "double": "CASE i WHEN 0 THEN 'NaN' WHEN 2 THEN '-0' ELSE (i / 7.0)::text END::float8 * 1e250",
    "text": "CASE i WHEN 0 THEN '' WHEN 1 THEN NULL ELSE repeat(E'ä\"~,\\n\\\\', i) END",
    "blanks": "'ab'::char(5)",
    "name": "('n' || i)::varchar(20)",
    "bytes": "CASE WHEN i > 1 THEN decode(lpad(to_hex(i), 4, '0'), 'hex') END",
    "day": "CASE WHEN i % 2 = 0 THEN DATE '2024-02-28' + i ELSE DATE '0044-03-15 BC' END",
    "stamp": "TIMESTAMP '2024-02-29 23:59:59' + i * INTERVAL '500 microseconds'",
    "instant": "TIMESTAMPTZ '2024-02-29 23:59:59.5+01:00'",
    "older": "TIMESTAMPTZ '0044-03-15 01:02:03+00 BC'",
    "clock": "TIME '23:59:59.25'",
    "span": "INTERVAL '1 day 2 seconds' * i",
    "id": "md5(i::text)::uuid",
    "document": "jsonb_build_object('a', i)",
    "array": "ARRAY[i, NULL]",
    "pair": "ROW(NULL::int, NULL::text)::pairs",
}
PG_FAR = {"far": "CASE i WHEN 0 THEN DATE 'infinity' ELSE DATE '12000-01-01' END"}
FORMATS = {"csv": TextFormat(), "parquet": ParquetFormat(), "tsv": TextFormat(delimiter="\t")}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DuckDB file with a table of every type."""
    path = tmp_path_factory.mktemp("source") / "t.db"
    items = ", ".join(f'{sql} AS "{name}"' for name, sql in {**DUCKDB, **UNHASHED, **FAR}.items())
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE t AS SELECT {items} FROM range(30)")
    return path


def job_of(source: SourceSpec, to: Path, kind: str, exclude: tuple[str, ...]) -> Request:
    """Return a job that is verified with the source."""
    return Request(
        source=source,
        selection=Selection(table=parse_table("t"), exclude=exclude),
        output=OutputOptions(destination=str(to), format=FORMATS[kind]),
        parallelism=1,
        unit_bytes=1000,
        seats=SeatOptions(numa="off"),
        verify="source",
    )


def duck(database: Path) -> SourceSpec:
    """Return the spec of a DuckDB file."""
    return SourceSpec(kind="duckdb", location=f"duckdb://{database}")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_duckdb_computes_the_same_of_every_type(database: Path, tmp_path: Path, kind: str) -> None:
    """During the run and later; types without SQL for a checksum are named, and not compared."""
    exclude = tuple(FAR) if kind == "parquet" else ()
    manifest = api.unload(job_of(duck(database), tmp_path / "out", kind, exclude))
    assert manifest["verified"]["level"] == "source"
    named = [text.partition(":")[0] for text in manifest["verified"]["not_compared"]]
    assert named == list(UNHASHED)
    heard: list[Event] = []
    found = api.verify(tmp_path / "out", duck(database), level="source", observe=heard.append)
    assert (found["result"], found["snapshot"]) == ("ok", "at the run's snapshot")
    assert [text.partition(":")[0] for text in found["not_compared"]] == list(UNHASHED)
    assert any(isinstance(event, Verified) and event.what == "units" for event in heard)


@pytest.mark.parametrize(
    "kind", ["csv", "parquet", pytest.param("tsv", marks=pytest.mark.long(OTHER_ROUTES))]
)
def test_postgresql_computes_the_same_of_every_type(
    postgres: Any, tmp_path: Path, kind: str
) -> None:
    """At the snapshot of the run, for what COPY sends as text and as values."""
    url = postgres.database(f"hashed_{kind}")
    columns = POSTGRES if kind == "parquet" else {**POSTGRES, **PG_FAR}
    items = ", ".join(f'{sql} AS "{name}"' for name, sql in columns.items())
    postgres.run(
        "CREATE TYPE pairs AS (a int, b text); "
        f"CREATE TABLE t AS SELECT {items} FROM generate_series(0, 29) AS i",
        url=url,
    )
    job = job_of(SourceSpec(kind="postgresql", location=url), tmp_path / "out", kind, ())
    manifest = api.unload(job)
    assert manifest["verified"]["not_compared"] == []
    assert manifest["totals"]["rows"] == 30


def test_another_value_in_the_source_is_found(database: Path, tmp_path: Path) -> None:
    """A single value that is another now: the column is named, and the state that was asked."""
    later = tmp_path / "later.db"
    later.write_bytes(database.read_bytes())
    api.unload(job_of(duck(database), tmp_path / "out", "csv", ()))
    with closing(duckdb.connect(str(later))) as connection:
        connection.execute("UPDATE t SET amount = amount + 0.0001 WHERE amount = 0")
    with pytest.raises(VerifyMismatch, match=r"column amount has the .* \(as the source is"):
        api.verify(tmp_path / "out", duck(later), level="source")
    assert api.verify(tmp_path / "out", duck(later))["result"] == "ok"


def test_a_run_that_recorded_nothing_is_compared_with_the_source(
    database: Path, tmp_path: Path
) -> None:
    """The files are read, and held against the database as a whole."""
    job = job_of(duck(database), tmp_path / "out", "parquet", tuple(FAR))
    api.unload(replace(job, verify="count"))
    found = api.verify(tmp_path / "out", duck(database), level="source")
    assert (found["result"], found["source_rows"]) == ("ok", 30)


def test_values_that_workers_fetch_are_compared_unit_by_unit(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the source has other values the run fails, and publishes nothing."""
    from unloader.sources.duckdb import catalog

    wrong = replace(catalog.HASHING, sum="sum(CAST('0x' || left(md5({} || 'x'), 16) AS UBIGINT))")
    monkeypatch.setattr(catalog, "HASHING", wrong)
    job = job_of(duck(database), tmp_path / "out", "csv", (*UNHASHED, *FAR))
    with pytest.raises(VerifyMismatch, match="unit 0001: column flag has the") as caught:
        api.unload(job)
    assert caught.value.exit_code == 8
    assert not (tmp_path / "out" / "_manifest.json").exists()


def test_a_source_without_checksums_says_so(tmp_path: Path) -> None:
    """Before anything is read, with the level that there is."""
    import sqlite3

    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        connection.commit()
    spec = SourceSpec(kind="sqlite", location=f"sqlite://{path}")
    heard: list[Event] = []
    with pytest.raises(UsageError, match="sqlite has no SQL") as caught:
        api.unload(job_of(spec, tmp_path / "out", "csv", ()), observe=heard.append)
    assert "--verify full" in caught.value.hint
    assert not any(isinstance(event, Notice) for event in heard)


def test_the_level_needs_a_source(tmp_path: Path) -> None:
    """The error says where it goes."""
    with pytest.raises(UsageError, match="--level source") as caught:
        api.verify(tmp_path, level="source")
    assert "SOURCE" in caught.value.hint
