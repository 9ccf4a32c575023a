"""What a role or a database sets changes no byte, and the user's own names still mean the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES
from processes import command

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
def url(postgres: Any) -> str:
    """A database with types whose text depends on settings, and names that hide built-in ones."""
    found: str = postgres.database("settings")
    postgres.run(SETUP.replace("'s'::s.mood AS e", "'sad'::s.mood AS e"), url=found)
    return found


def unloaded(url: str, to: Path, *settings: str) -> dict[str, bytes]:
    """Return the files of a run whose sessions begin with some settings."""
    options = "".join(f"%20-c%20{each.replace('=', '%3D')}" for each in settings)
    for form in ("csv", "parquet"):
        command.run(
            "run", f"{url}&options={options}", "--table", "s.*", "--table", "s.v",
            "--to", f"{to}/{form}/{{table}}", "--format", form, "--file-per", "table",
            "--unit-bytes", "16kB", "--verify", "source", "--progress", "none",
            *(("--date-format", "DD.MM.YYYY", "--binary-format", "hex") if form == "csv" else ()),
        )  # fmt: skip
    files = [each for suffix in ("csv", "parquet") for each in to.rglob(f"*.{suffix}")]
    return {str(each.relative_to(to)): each.read_bytes() for each in files}


@pytest.mark.parametrize("settings", [TEXTS, PLANS], ids=["texts", "plans"])
def test_no_setting_changes_a_byte(url: str, tmp_path: Path, settings: tuple[str, ...]) -> None:
    """No setting that changes how values look, how rows are found, or how long it may take."""
    plain = unloaded(url, tmp_path / "plain")
    assert len(plain) == 6
    assert unloaded(url, tmp_path / "set", *settings) == plain


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("setting", [*TEXTS, *PLANS])
def test_no_setting_alone_changes_a_byte(url: str, tmp_path: Path, setting: str) -> None:
    """Each setting is tried alone, since another one may undo it."""
    assert unloaded(url, tmp_path / "set", setting) == unloaded(url, tmp_path / "plain")


def test_names_of_the_user_are_found_by_the_users_path(
    postgres: Any, url: str, tmp_path: Path
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
        url=url,
    )
    by_path = f"{url}&options=-c%20search_path%3Dapp,public"
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
