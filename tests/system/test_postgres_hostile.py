"""Hostile tables, encodings and settings of PostgreSQL: the output is the table."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest
from amounts import amount
from long_tests import OTHER_ROUTES, also
from postgres import hostile_rows
from postgres.hostile_rows import COLUMNS, INFINITE, NAME
from processes import command

from unloader.sources.statement import quoted

ROWS = amount("UNLOADER_TEST_HOSTILE_ROWS", 4_000, 12_000)
PARALLELISM = (5, *also("many workers", 1, 2, 32))


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    """A database with the hostile table."""
    found: str = postgres.database("hostile")
    postgres.run(hostile_rows.create(ROWS), url=found)
    return found


def unload(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `unloader run` as a user does and check its exit status."""
    done = command.ended("run", *arguments, "--progress", "none")
    assert done.returncode == status, done.stderr
    return done


def assert_same(postgres: Any, url: str, files: list[Path], options: str) -> None:
    """Load files into an empty copy of the table through COPY and compare in both directions."""
    postgres.run(f"DROP TABLE IF EXISTS back; CREATE TABLE back ({COLUMNS}, gen bigint)", url=url)
    copies = "".join(f"\\copy back from '{file}' with ({options})\n" for file in files)
    postgres.run(f"SET client_encoding = 'UTF8';\n{copies}", url=url)
    # json has no equality; numeric and float values must agree in their text as well (-0, 1.50).
    shown = postgres.run(
        "SELECT string_agg(quote_ident(attname) || '::text', ', ' ORDER BY attnum) "
        "FROM pg_attribute WHERE attrelid = 'back'::regclass AND attnum > 0",
        url=url,
    )
    ours, theirs = f"SELECT {shown} FROM back", f"SELECT {shown} FROM {NAME}"
    counts = postgres.run(
        f"SELECT count(*) FROM back; SELECT count(*) FROM {NAME};"
        f"SELECT count(*) FROM ({ours} EXCEPT ALL {theirs}) AS more;"
        f"SELECT count(*) FROM ({theirs} EXCEPT ALL {ours}) AS less;",
        url=url,
    ).split()
    assert counts == [str(ROWS), str(ROWS), "0", "0"]


@pytest.mark.parametrize("parallelism", PARALLELISM)
def test_csv_loads_back_through_copy(
    postgres: Any, url: str, tmp_path: Path, parallelism: int
) -> None:
    """CSV at any parallelism, loaded by PostgreSQL's own COPY, is the table to the last digit."""
    dest = tmp_path / "out"
    done = unload(
        url, "--table", NAME, "--to", str(dest), "--parallelism", str(parallelism), "--json"
    )
    manifest = json.loads(done.stdout)
    assert manifest["totals"]["rows"] == ROWS
    assert len({unit["partition"] for unit in manifest["units"]}) == 32
    assert_same(postgres, url, sorted(dest.glob("*.csv")), "format csv, header true")


def test_encoded_and_arrow_route_agree(url: str, tmp_path: Path) -> None:
    """The server's own CSV and our encoder's have the same bytes in every unit."""
    common = [url, "--table", NAME, "--parallelism", "2"]
    unload(*common, "--to", str(tmp_path / "encoded"))
    # A file size makes the run go through batches; this one is never reached.
    unload(
        *common, "--to", str(tmp_path / "arrow"), "--file-size", "1TiB",
        "--file-name", "{table}.{unit}{part}.{ext}", "--as-text", ",".join(INFINITE),
    )  # fmt: skip
    encoded = sorted((tmp_path / "encoded").glob("*.csv"))
    arrow = sorted((tmp_path / "arrow").glob("*.csv"))
    assert len(encoded) == len(arrow) == 32
    for ours, theirs in zip(encoded, arrow, strict=True):
        assert ours.read_bytes() == theirs.read_bytes(), ours.name


def test_parquet_refuses_what_it_cannot_hold(url: str, tmp_path: Path) -> None:
    """Infinite dates and NaN numerics stop the run by the names of their columns."""
    dest = tmp_path / "out"
    done = unload(
        url, "--table", NAME, "--to", str(dest), "--format", "parquet", "--parallelism", "2",
        status=6,
    )  # fmt: skip
    message = done.stderr.strip().splitlines()[-1]
    for column in INFINITE:
        assert f"column {column}" in message
    assert "--as-text" in message
    assert not list(dest.glob("*.parquet"))
    assert not (dest / "_manifest.json").exists()


@pytest.mark.parametrize("parallelism", PARALLELISM)
def test_parquet_read_by_duckdb_is_the_table(
    postgres: Any, url: str, tmp_path: Path, parallelism: int
) -> None:
    """Parquet, read by DuckDB and loaded back, is the table; exact types stay typed."""
    dest = tmp_path / "out"
    unload(
        url, "--table", NAME, "--to", str(dest), "--format", "parquet",
        "--parallelism", str(parallelism), "--as-text", ",".join(INFINITE),
    )  # fmt: skip
    back = tmp_path / "back.csv"
    with duckdb.connect() as reader:
        source = f"read_parquet('{dest}/*.parquet')"
        kinds = {row[0]: row[1] for row in reader.sql(f"DESCRIBE FROM {source}").fetchall()}
        assert kinds["id"] == "BIGINT"
        assert kinds["f4"] == "FLOAT"
        assert kinds["by"] == "BLOB"
        assert kinds["dom"] == "DECIMAL(10,2)"
        shown = ", ".join(
            f"""'\\x' || lower(hex("{name}"))"""
            if kind == "BLOB"
            else '"' + name.replace('"', '""') + '"'
            for name, kind in kinds.items()
        )
        reader.execute(
            f"COPY (SELECT {shown} FROM {source}) TO '{back}' (FORMAT csv, HEADER false, "
            "QUOTE '\"', ESCAPE '\"', NULLSTR '', FORCE_QUOTE *)"
        )
    # FORCE_QUOTE leaves NULL bare, so that it differs from the empty string.
    assert_same(postgres, url, [back], "format csv")


ENCODINGS = {"LATIN1": "é", "WIN1252": "€", "EUC_JP": "日本", "SQL_ASCII": "é日"}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_source_has_the_same_checksums(postgres: Any, tmp_path: Path, encoding: str) -> None:
    """A checksum is of the UTF-8 of a text, in the database and in fetched rows."""
    url, text = postgres.database(f"in {encoding}", encoding), ENCODINGS[encoding]
    postgres.run(
        "SET client_encoding = 'UTF8';"
        f"CREATE TABLE t AS SELECT g AS id, '{text}' || g AS s, '{text}'::varchar(9) AS v,"
        f" '{text}'::char(9) AS c, ARRAY['{text}'] AS a, 1.50 AS n, '\\xe9'::bytea AS b"
        " FROM generate_series(1, 9) g",
        url=url,
    )
    for number, form in enumerate(("csv", "parquet")):
        to = str(tmp_path / form)
        command.run(
            "run", url, "--table", "t", "--to", to, "--format", form, "--verify", "source",
            "--progress", "none",
        )  # fmt: skip
        command.run("verify", to, url, "--level", "source")
        if not number:
            assert text in (tmp_path / form / "t.0001.csv").read_text()


def test_a_table_of_many_columns_has_checksums(postgres: Any, tmp_path: Path) -> None:
    """More than one statement of PostgreSQL can name with two items each."""
    url = postgres.database("many columns")
    names = [f"c{number}" for number in range(1500)]
    columns = ", ".join(f"{name} int" for name in names)
    values = ", ".join(map(str, range(len(names))))
    postgres.run(f"CREATE TABLE t ({columns}); INSERT INTO t VALUES ({values})", url=url)
    to = tmp_path / "o"
    command.run("run", url, "--table", "t", "--to", str(to), "--verify", "source")
    assert command.manifest_of(to)["verified"]["level"] == "source"
    (content,) = [unit["content"] for unit in command.manifest_of(to)["units"]]
    assert len(content["sums"]) == len(names)


@pytest.mark.parametrize("consistency", ["snapshot", "none"])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_text_without_utf8_is_named(
    postgres: Any, tmp_path: Path, form: str, consistency: str
) -> None:
    """Table and columns are in the error, and its advice gives the bytes."""
    url = postgres.database("ascii", "SQL_ASCII")
    postgres.run(
        "CREATE TABLE t AS SELECT 7 AS id, convert_from('\\xe9', 'SQL_ASCII') AS s,"
        " 'fine'::text AS f, convert_from('\\x5c783431ff', 'SQL_ASCII') AS \"V\"",
        url=url,
    )
    to = tmp_path / "o"
    run = ("--to", str(to), "--format", form, "--consistency", consistency, "--progress", "none")
    error = command.error_of("run", url, "--table", "t", *run, status=4)
    assert "public.t has text that is not UTF-8 in s, V: " in error
    assert not (to / "_manifest.json").exists()

    left_out = re.search(r"--exclude (\S+),", error)
    assert left_out is not None
    command.run("run", url, "--table", "t", *run, "--exclude", left_out[1])
    read = re.search(r"such column: (convert_to.*)$", error.strip())
    assert read is not None
    query = f"SELECT {read[1]}, {read[1].replace(quoted('s'), quoted('V'))} FROM t"
    command.run("run", url, "--query", query, *run, "--overwrite")
    if form == "csv":
        assert (to / "query.0001.csv").read_text() == "s,V\n\\xe9,\\x5c783431ff\n"


SETUP = r"""
CREATE SCHEMA s; CREATE TYPE s.mood AS ENUM ('sad');
CREATE TABLE s.t AS SELECT g AS id, (1.5 * g)::numeric::money AS m, date '2024-01-31' AS d,
  timestamp '2024-01-31 10:00' AS ts, timestamptz '2024-01-31 10:00+05' AS tz, '\x00ff'::bytea AS b,
  1.5::numeric(9, 2) AS n, 'c'::char(3) AS c, 'v'::varchar(3) AS v, 0.1::float8 + 0.2 AS f,
  true AS o, interval '1 day 2:00' AS iv, ARRAY[1, NULL] AS a, 's''\e' AS x, 's'::s.mood AS e
  FROM generate_series(1, 900) g LIMIT 0;
INSERT INTO s.t SELECT g, (1.5 * g)::numeric::money, '2024-01-31', '2024-01-31 10:00',
  '2024-01-31 10:00+05', '\x00ff', 1.5, 'c', 'v', 0.1::float8 + 0.2, true, '1 day 2:00',
  ARRAY[1, NULL], 's''\e', 'sad' FROM generate_series(1, 900) g;
CREATE VIEW s.v AS SELECT * FROM s.t WHERE id % 2 = 0;
CREATE TABLE s.p (k int, w text) PARTITION BY LIST (k);
CREATE TABLE s.p1 PARTITION OF s.p FOR VALUES IN (1);
CREATE TABLE s.p2 PARTITION OF s.p DEFAULT; INSERT INTO s.p SELECT g % 3, g FROM generate_series(1, 99) g;
CREATE SCHEMA evil; CREATE DOMAIN evil.text AS int;
CREATE FUNCTION evil.format_type(oid, int) RETURNS pg_catalog.text LANGUAGE sql AS 'SELECT ''text''';
CREATE FUNCTION evil.replace(pg_catalog.text, pg_catalog.text, pg_catalog.text)
  RETURNS pg_catalog.text LANGUAGE sql AS 'SELECT ''replaced''';
CREATE FUNCTION evil.encode(bytea, pg_catalog.text) RETURNS pg_catalog.text LANGUAGE sql AS
  'SELECT ''encoded''';
CREATE OPERATOR evil.= (LEFTARG = int, RIGHTARG = int, FUNCTION = int4ne);
CREATE OPERATOR evil.>= (LEFTARG = tid, RIGHTARG = tid, FUNCTION = tidlt);
ANALYZE;
"""
TEXTS = (
    "quote_all_identifiers=on", "search_path=evil,pg_catalog,public", "TimeZone=Asia/Kolkata",
    "DateStyle=German,DMY", "IntervalStyle=iso_8601", "bytea_output=escape",
    "extra_float_digits=-15", "client_encoding=LATIN1", "standard_conforming_strings=off",
    "array_nulls=off", "transform_null_equals=on", "lc_monetary=C", "xmloption=document",
)  # fmt: skip
PLANS = (
    "enable_tidscan=off", "enable_seqscan=off", "debug_parallel_query=regress", "jit_above_cost=0",
    "plan_cache_mode=force_generic_plan", "join_collapse_limit=1", "from_collapse_limit=1",
    "session_replication_role=replica", "constraint_exclusion=on", "gin_fuzzy_search_limit=1",
    "synchronize_seqscans=on", "max_parallel_workers_per_gather=4", "row_security=off",
    "default_transaction_isolation=serializable", "default_transaction_deferrable=on",
    "statement_timeout=50", "idle_in_transaction_session_timeout=250", "idle_session_timeout=250",
    "transaction_timeout=250", "exit_on_error=on", "client_min_messages=debug5",
)  # fmt: skip


@pytest.fixture(scope="module")
def settings_url(postgres: Any) -> str:
    """A database with types whose text depends on settings, and names that hide built-in ones."""
    found: str = postgres.database("settings")
    postgres.run(SETUP.replace("'s'::s.mood AS e", "'sad'::s.mood AS e"), url=found)
    return found


def unloaded(settings_url: str, to: Path, *settings: str) -> dict[str, bytes]:
    """Return the files of a run whose sessions begin with some settings."""
    options = "".join(f"%20-c%20{each.replace('=', '%3D')}" for each in settings)
    for form in ("csv", "parquet"):
        command.run(
            "run", f"{settings_url}&options={options}", "--table", "s.*", "--table", "s.v",
            "--to", f"{to}/{form}/{{table}}", "--format", form, "--file-per", "table",
            "--unit-bytes", "16kB", "--verify", "source", "--progress", "none",
            *(("--date-format", "DD.MM.YYYY", "--binary-format", "hex") if form == "csv" else ()),
        )  # fmt: skip
    files = [each for suffix in ("csv", "parquet") for each in to.rglob(f"*.{suffix}")]
    return {str(each.relative_to(to)): each.read_bytes() for each in files}


@pytest.mark.parametrize("settings", [TEXTS, PLANS], ids=["texts", "plans"])
def test_no_setting_changes_a_byte(
    settings_url: str, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    """No setting that changes how values look, how rows are found, or how long it may take."""
    plain = unloaded(settings_url, tmp_path / "plain")
    assert len(plain) == 6
    assert unloaded(settings_url, tmp_path / "set", *settings) == plain


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("setting", [*TEXTS, *PLANS])
def test_no_setting_alone_changes_a_byte(settings_url: str, tmp_path: Path, setting: str) -> None:
    """Each setting is tried alone, since another one may undo it."""
    assert unloaded(settings_url, tmp_path / "set", setting) == unloaded(
        settings_url, tmp_path / "plain"
    )


def test_names_of_the_user_are_found_by_the_users_path(
    postgres: Any, settings_url: str, tmp_path: Path
) -> None:
    """Unqualified tables, functions, operators and bodies have the meaning that psql gives them."""
    postgres.run(
        "CREATE SCHEMA IF NOT EXISTS app; CREATE TABLE app.orders AS SELECT 5 AS id;"
        "CREATE TABLE public.orders AS SELECT 6 AS id;"
        "CREATE FUNCTION app.twice(int) RETURNS int LANGUAGE sql AS 'SELECT $1 * 2';"
        "CREATE OPERATOR app.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);"
        "CREATE FUNCTION app.now_read() RETURNS SETOF int LANGUAGE plpgsql AS"
        " 'BEGIN RETURN QUERY SELECT id FROM orders; END';"
        "CREATE VIEW app.seen AS SELECT now_read AS id FROM app.now_read();",
        url=settings_url,
    )
    by_path = f"{settings_url}&options=-c%20search_path%3Dapp,public"
    for number, (what, rows) in enumerate(
        (
            (("--table", "orders"), "5"),
            (("--table", "orders", "--where", "twice(id) === 10"), "5"),
            (("--query", "SELECT twice(id) AS id FROM orders WHERE id === 5"), "10"),
            (("--table", "seen"), "5"),
            (("--table", "orders", "--sample-by", "id", "--sample", "99.9%"), "5"),
        )
    ):
        to = tmp_path / str(number)
        command.run(
            "run", by_path, *what, "--to", str(to), "--no-header", "--verify", "source",
            "--progress", "none",
        )  # fmt: skip
        assert [each.read_text() for each in to.glob("*.csv")] == [f"{rows}\n"]
