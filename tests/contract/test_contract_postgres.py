"""The contract of a source, kept by PostgreSQL."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from contract.postgres_types import EXPECTED, create
from long_tests import OTHER_ROUTES, also
from msgspec.structs import replace

from partition_planner.model import PlanLimits
from partition_planner.planner import plan
from unloader import api
from unloader.errors import SnapshotGone, SourceError
from unloader.model import (
    OutputOptions,
    Request,
    RetryOptions,
    SecretReference,
    Selection,
    Snapshot,
    SourceSpec,
)
from unloader.redaction import PASSWORD_VARIABLE
from unloader.request.names import parse_table
from unloader.sources.postgres.source import PostgresSource
from unloader.sources.testing import WorkerReader, check_source
from writers.model import TextFormat


def spec_of(url: str) -> SourceSpec:
    """Return the spec of a database."""
    return SourceSpec(kind="postgresql", location=url)


def check(url: str, table: str, expected: list[tuple[object, ...]], **more: Any) -> None:
    """Check the contract on one table."""
    check_source(PostgresSource(), spec_of(url), parse_table(table), expected, **more)


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    """A database with the tables of this module."""
    found: str = postgres.database("contract")
    postgres.run(f"{create()}CREATE TABLE vacant (a integer, b text);", url=found)
    return found


COUNT = 6000
ROWS: list[tuple[object, ...]] = [
    (key, None if key % 7 == 0 else f"row {key}", date(2020 + key % 4, 1, 1))
    for key in range(COUNT)
]
COLUMNS = "k integer, v text, d date"
FILL = (
    "SELECT g, CASE WHEN g % 7 > 0 THEN 'row ' || g END, make_date(2020 + g % 4, 1, 1) "
    f"FROM generate_series(0, {COUNT - 1}) g"
)


def test_contract_of_many_types(postgres: Any, url: str) -> None:
    """A table with a column of almost every type, NULLs and edges in each, keeps the contract."""

    def connected() -> set[str]:
        query = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'unloader%'"
        return set(postgres.run(query).split())

    # Other tests share the server, and their leftovers do not concern this test.
    before = connected()

    def nobody_of_ours_is_connected() -> None:
        assert connected() <= before

    more = {"empty": parse_table("vacant"), "after_close": nobody_of_ours_is_connected}
    check(url, "types", EXPECTED, **more)


def test_contract_of_a_table_cut_by_blocks(postgres: Any, url: str) -> None:
    """A table without partitions is read in ranges of blocks, mixed case and quotes in its name."""
    postgres.run(
        'CREATE SCHEMA "Odd ""Schema"; '
        'CREATE TABLE "Odd ""Schema"."From, Table" ("k" integer, "a ""b""" text, "From" date);'
        f'INSERT INTO "Odd ""Schema"."From, Table" {FILL};'
        'DELETE FROM "Odd ""Schema"."From, Table" WHERE "k" % 10 = 3;',
        url=url,
    )
    table = '"Odd ""Schema"."From, Table"'
    check(url, table, [row for row in ROWS if int(str(row[0])) % 10 != 3])


USUAL = ("list with sub-partitions", "partitions in another schema under one name")
PARTITIONINGS = {
    "hash": (
        "PARTITION BY HASH (k)",
        "CREATE TABLE {t}_0 PARTITION OF {t} FOR VALUES WITH (MODULUS 3, REMAINDER 0);"
        "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES WITH (MODULUS 3, REMAINDER 1);"
        "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES WITH (MODULUS 3, REMAINDER 2);",
        3,
    ),
    "range with a default": (
        "PARTITION BY RANGE (k)",
        "CREATE TABLE {t}_low PARTITION OF {t} FOR VALUES FROM (0) TO (2000);"
        "CREATE TABLE {t}_none PARTITION OF {t} FOR VALUES FROM (-9) TO (-5);"
        "CREATE TABLE {t}_mid PARTITION OF {t} FOR VALUES FROM (2000) TO (2001);"
        "CREATE TABLE {t}_rest PARTITION OF {t} DEFAULT;",
        4,
    ),
    "list with sub-partitions": (
        "PARTITION BY LIST (d)",
        "CREATE TABLE {t}_a PARTITION OF {t} FOR VALUES IN ('2020-01-01', '2021-01-01')"
        " PARTITION BY HASH (k);"
        "CREATE TABLE {t}_a0 PARTITION OF {t}_a FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
        "CREATE TABLE {t}_a1 PARTITION OF {t}_a FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
        "CREATE TABLE {t}_b PARTITION OF {t} FOR VALUES IN ('2022-01-01');"
        "CREATE TABLE {t}_c PARTITION OF {t} FOR VALUES IN ('2023-01-01');",
        4,
    ),
    "a partition attached with its own layout": (
        "PARTITION BY RANGE (k)",
        "CREATE TABLE {t}_low PARTITION OF {t} FOR VALUES FROM (0) TO (3000);"
        "CREATE TABLE {t}_high (gone text, d date, lost integer, v text, k integer);"
        "ALTER TABLE {t}_high DROP COLUMN gone, DROP COLUMN lost;"
        "ALTER TABLE {t} ATTACH PARTITION {t}_high FOR VALUES FROM (3000) TO (9000);",
        2,
    ),
    "partitions in another schema under one name": (
        "PARTITION BY RANGE (k)",
        "CREATE SCHEMA {t}_one; CREATE SCHEMA {t}_two;"
        "CREATE TABLE {t}_one.part PARTITION OF {t} FOR VALUES FROM (0) TO (3000);"
        "CREATE TABLE {t}_two.part PARTITION OF {t} FOR VALUES FROM (3000) TO (9000);",
        2,
    ),
}


@pytest.mark.parametrize(
    "how", [*USUAL, *also(OTHER_ROUTES, *sorted(PARTITIONINGS.keys() - set(USUAL)))]
)
def test_contract_of_a_partitioned_table(postgres: Any, url: str, how: str) -> None:
    """Every kind of partitioning keeps the contract, and each leaf is a partition of the plan."""
    by, leaves, count = PARTITIONINGS[how]
    name = f"p{list(PARTITIONINGS).index(how)}"
    postgres.run(
        f"CREATE TABLE {name} ({COLUMNS}) {by}; {leaves.format(t=name)} "
        f"INSERT INTO {name} {FILL}; ANALYZE {name};",
        url=url,
    )
    with closing(PostgresSource().open_catalog(spec_of(url))) as catalog:
        table = catalog.describe(parse_table(name))
        assert len({part.name for part in table.partitions}) == count
        assert catalog.missing_privileges(table) == ()
    check(url, name, ROWS)


@pytest.mark.long(OTHER_ROUTES)
def test_contract_of_plain_inheritance(postgres: Any, url: str) -> None:
    """A parent with its own rows and children with more columns gives each row once."""
    postgres.run(
        f"CREATE TABLE parent ({COLUMNS}); CREATE TABLE child (more text) INHERITS (parent);"
        "CREATE TABLE other (extra text) INHERITS (parent);"
        "CREATE TABLE grandchild () INHERITS (child, other);"
        f"INSERT INTO parent SELECT * FROM ({FILL}) f (k, v, d) WHERE k % 3 = 0;"
        f"INSERT INTO child SELECT *, 'x' FROM ({FILL}) f (k, v, d) WHERE k % 3 = 1;"
        f"INSERT INTO grandchild SELECT * FROM ({FILL}) f (k, v, d) WHERE k % 3 = 2;",
        url=url,
    )
    check(url, "parent", ROWS)


def test_contract_of_views(postgres: Any, url: str) -> None:
    """A view and a materialized view keep the contract; the latter is read by blocks."""
    postgres.run(
        f"CREATE VIEW seen_all (k, v, d) AS {FILL};"
        f"CREATE MATERIALIZED VIEW kept (k, v, d) AS {FILL};",
        url=url,
    )
    check(url, "seen_all", ROWS)
    check(url, "kept", ROWS)


def test_contract_of_generated_columns(postgres: Any, url: str) -> None:
    """Stored and identity columns are read like others."""
    postgres.run(
        "CREATE TABLE made (id bigint GENERATED ALWAYS AS IDENTITY, n integer,"
        " twice integer GENERATED ALWAYS AS (n * 2) STORED);"
        "INSERT INTO made (n) SELECT g FROM generate_series(1, 40) g",
        url=url,
    )
    check(url, "made", [(n, n, 2 * n) for n in range(1, 41)])


def test_a_snapshot_that_has_ended_is_known_as_such(url: str) -> None:
    """The contract tells a lost snapshot from a failure of the reader in the other process."""
    gone = Snapshot(
        kind="exported-snapshot", value="0000002F-0000001A-1", taken_at="2026-11-28T00:00:00Z"
    )
    with pytest.raises(SnapshotGone, match="0000002F-0000001A-1"):
        WorkerReader(PostgresSource(), spec_of(url), gone)


def test_contract_of_one_column(postgres: Any, url: str) -> None:
    """NULL, the empty string, an empty line and the end mark of COPY stay apart in one column."""
    postgres.run(
        "CREATE TABLE one (v text); INSERT INTO one VALUES (NULL), (''), (E'\\n'), ('\\.'), (' ')",
        url=url,
    )
    check(url, "one", [(None,), ("",), ("\n",), ("\\.",), (" ",)])


def job_of(url: str, table: str, to: Path, **selection: Any) -> Request:
    """Return a job that writes CSV without a header."""
    return Request(
        source=spec_of(url),
        selection=Selection(table=parse_table(table), **selection),
        output=OutputOptions(destination=str(to), format=TextFormat(header=False)),
        parallelism=1,
        retry=RetryOptions(retries=0),
    )


def records(to: Path) -> list[list[str]]:
    """Return the records of all files, in order of the files."""
    found = []
    for path in sorted(to.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            found += list(csv.reader(file))
    return found


def test_a_leaf_is_unloaded_by_its_own_name(postgres: Any, url: str, tmp_path: Path) -> None:
    """A partition, named like a table, gives its own rows and no others."""
    postgres.run(
        f"CREATE TABLE leafy ({COLUMNS}) PARTITION BY RANGE (k);"
        "CREATE TABLE leafy_a PARTITION OF leafy FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE leafy_b PARTITION OF leafy DEFAULT;"
        f"INSERT INTO leafy {FILL}",
        url=url,
    )
    manifest = api.unload(job_of(url, "leafy_a", tmp_path / "a"))
    assert sorted(int(row[0]) for row in records(tmp_path / "a")) == list(range(10))
    assert manifest["verified"]["source_rows"] == 10
    assert manifest["table"]["name"] == "leafy_a"


@pytest.fixture
def reader(postgres: Any, url: str) -> Iterator[str]:
    """The URL of a role that has no right to anything yet."""
    postgres.run("CREATE ROLE reader LOGIN", url=url)
    assert "postgres@" in url
    yield url.replace("postgres@", "reader@")
    postgres.run("DROP OWNED BY reader; DROP ROLE reader", url=url)


def test_a_reader_of_the_parent_alone_gets_one_unit(
    postgres: Any, url: str, reader: str, tmp_path: Path
) -> None:
    """A user who may not read the partitions gets the whole table as one unit, and the reason."""
    postgres.run(
        f"CREATE TABLE closed ({COLUMNS}) PARTITION BY HASH (k);"
        "CREATE TABLE closed_0 PARTITION OF closed FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
        "CREATE TABLE closed_1 PARTITION OF closed FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
        f"INSERT INTO closed {FILL}; GRANT SELECT ON closed TO reader",
        url=url,
    )
    with closing(PostgresSource().open_catalog(spec_of(reader))) as catalog:
        table = catalog.describe(parse_table("closed"))
        assert len(plan(table, PlanLimits(parallelism=4)).units) == 1
        missing = catalog.missing_privileges(table)
    assert len(missing) == 2
    assert 'SELECT on "public"."closed_0" is missing' in missing[0]
    check(reader, "closed", ROWS)
    manifest = api.unload(job_of(reader, "closed", tmp_path / "out"))
    assert manifest["totals"]["rows"] == COUNT


def test_a_reader_of_some_columns_gets_them(
    postgres: Any, url: str, reader: str, tmp_path: Path
) -> None:
    """With rights on columns those can be unloaded, as one unit: a cut by blocks needs more."""
    postgres.run(
        f"CREATE TABLE columns ({COLUMNS}); INSERT INTO columns {FILL};"
        "GRANT SELECT (k, v) ON columns TO reader",
        url=url,
    )
    job = job_of(reader, "columns", tmp_path / "out", columns=("v", "k"))
    manifest = api.unload(replace(job, parallelism=2, unit_bytes=32 * 1024))
    assert manifest["totals"]["rows"] == COUNT
    with pytest.raises(SourceError, match="permission denied"):
        api.unload(job_of(reader, "columns", tmp_path / "all"))
    assert not (tmp_path / "all").exists()


def test_a_reader_of_some_columns_of_a_partitioned_table_gets_them(
    postgres: Any, url: str, reader: str, tmp_path: Path
) -> None:
    """Rights on columns do not include `tableoid`: rows are counted without it."""
    postgres.run(
        f"CREATE TABLE column_parts ({COLUMNS}) PARTITION BY HASH (k);"
        "CREATE TABLE column_parts_0 PARTITION OF column_parts"
        " FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
        "CREATE TABLE column_parts_1 PARTITION OF column_parts"
        " FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
        f"INSERT INTO column_parts {FILL}; GRANT SELECT (k, v) ON column_parts TO reader",
        url=url,
    )
    job = job_of(reader, "column_parts", tmp_path / "out", columns=("v", "k"))
    manifest = api.unload(job)
    assert manifest["totals"]["rows"] == manifest["verified"]["source_rows"] == COUNT


def test_an_unreadable_table_is_not_there(postgres: Any, url: str, reader: str) -> None:
    """Without any right the error names the table and the lack of a right."""
    postgres.run("CREATE TABLE hidden (k integer)", url=url)
    with (
        closing(PostgresSource().open_catalog(spec_of(reader))) as catalog,
        pytest.raises(SourceError, match=r"the table hidden.* or you have no right to read it"),
    ):
        catalog.describe(parse_table("hidden"))


@pytest.mark.parametrize("verify", ["none", "count"])
def test_a_policy_that_hides_rows_is_an_error(
    postgres: Any, url: str, reader: str, tmp_path: Path, verify: Any
) -> None:
    """Row level security never makes an output smaller without a word, counted or not."""
    table = f"guarded_{verify}"
    postgres.run(
        f"CREATE TABLE {table} ({COLUMNS}); INSERT INTO {table} {FILL};"
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
        f"CREATE POLICY few ON {table} USING (k < 10); GRANT SELECT ON {table} TO reader",
        url=url,
    )
    job = replace(job_of(reader, table, tmp_path / "out"), verify=verify)
    with pytest.raises(
        SourceError,
        match=rf"row-level security may hide rows of public.{table}, by policy few\..*"
        r"--enable-row-security.*BYPASSRLS",
    ):
        api.unload(job)
    assert not (tmp_path / "out").exists()
    assert api.unload(job_of(url, table, tmp_path / "all"))["totals"]["rows"] == COUNT


def test_a_wrong_password_is_a_source_error(
    postgres: Any, url: str, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused without the password's text; with the right one from the environment let in."""
    rules = Path(postgres.run("SHOW hba_file"))
    before = rules.read_text()
    postgres.run("SET password_encryption = 'scram-sha-256'; ALTER ROLE reader PASSWORD 'right 1'")
    secret = SecretReference(kind="environment", name=PASSWORD_VARIABLE)
    spec = replace(spec_of(reader), secret=secret)
    try:
        rules.write_text(f"local all reader scram-sha-256\n{before}")
        postgres.reload()
        monkeypatch.setenv(PASSWORD_VARIABLE, "wrong 2")
        with pytest.raises(SourceError, match=PASSWORD_VARIABLE) as caught:
            PostgresSource().open_catalog(spec)
        assert "wrong 2" not in str(caught.value)
        assert not caught.value.retryable
        monkeypatch.setenv(PASSWORD_VARIABLE, "right 1")
        PostgresSource().open_catalog(spec).close()
    finally:
        rules.write_text(before)
        postgres.reload()
