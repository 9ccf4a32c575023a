"""SQL over the rows of a batch: valid expressions, their access, and their results."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from masking.one_batch import OneBatch

from unloader.errors import OutputFailed, UsageError
from unloader.transforms.model import Step, TransformOptions
from unloader.transforms.sql_steps import check_condition, checked, functions, open_session
from unloader.transforms.transformer import check
from writers.schema import INFINITE

ROWS = pa.record_batch(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "name": pa.array(["a", None, "secret"]),
        "at": pa.array([0, 10**15, None], pa.timestamp("us", "UTC")),
    }
)


def computed(sql: str, batch: pa.RecordBatch = ROWS) -> pa.Array:
    """Return the column that an expression gives."""
    transform = TransformOptions(steps=(Step(step="compute", column="new", sql=sql),))
    found = OneBatch(transform, batch.schema, {}).one(batch)
    assert found.schema == check(transform, batch.schema).schema
    return found.column("new")


def refused(sql: str, schema: pa.Schema = ROWS.schema) -> str:
    """Return the error for an expression."""
    with pytest.raises(UsageError) as raised:
        check(TransformOptions(steps=(Step(step="compute", column="new", sql=sql),)), schema)
    return str(raised.value)


@pytest.mark.parametrize(
    "sql",
    [
        "1 FROM read_csv('/etc/passwd')",
        "(SELECT content FROM read_text('/etc/passwd'))",
        "(FROM '/etc/passwd')",
        "id IN (SELECT 1)",
        "EXISTS (FROM glob('*'))",
        "read_text('/etc/passwd')",
        "getenv('HOME')",
        "1; COPY (SELECT 1) TO '/tmp/x'",
        "1; SET threads = 8",
        "1; INSTALL httpfs",
        "1; ATTACH '/tmp/x.db'",
        "1) FROM duckdb_settings() --",
        "1) AS a, (2",
        "1 UNION ALL SELECT 2",
        "DISTINCT id",
        "id ORDER BY 1",
        "id LIMIT 1",
        "id WHERE id = 1",
        "id AS other",
        "*",
        "COLUMNS('.*')",
        "#1",
        "$1",
        "?",
        "unnest([1, 2])",
        "json_serialize_sql('SELECT 1')",
        "json_serialize_plan('SELECT 1')",
        "name.upper()",
        "system.main.random()",
        "list_transform([1], lambda x: x + 1)",
        "current_setting('memory_limit')",
        "getvariable('a')",
        "nextval('a')",
        "write_log('x')",
        "",
        "--",
        "id +",
        "nothing(id)",
        "missing + 1",
        "name + 1",
        "id::nothing",
        "'x'::INTEGER::list",
    ],
)
def test_an_expression_reaches_nothing_but_its_row(sql: str) -> None:
    """No file, table, setting, extension or second statement: refused before any row is read."""
    refused(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "random()", "uuid()", "gen_random_uuid()", "uuidv7()", "now()", "today()", "current_date",
        "current_timestamp", "localtimestamp", "current_localtime()", "current_localtimestamp()",
        "get_current_timestamp()", "transaction_timestamp()", "age(at)", "txid_current()",
        "version()", "stats(id)", "current_user", "ago(INTERVAL 1 DAY)", "setseed(0.1)",
    ],
)  # fmt: skip
def test_what_differs_from_run_to_run_is_refused(sql: str) -> None:
    """Chance, time and state of the session: the rows of a resumed run must be the same."""
    assert "new" in refused(sql)


@pytest.mark.parametrize(
    "sql",
    ["sum(id)", "count(*)", "max(name)", "row_number() OVER ()", "lag(id) OVER (ORDER BY id)"],
)
def test_what_depends_on_other_rows_is_refused(sql: str) -> None:
    """Batches fall otherwise in every run."""
    refused(sql)


def test_no_function_without_arguments_tells_the_time() -> None:
    """All functions that an expression may call, also new ones of DuckDB."""
    import duckdb

    session = open_session()
    found: dict[str, list[object]] = {}
    try:
        for name in sorted(name for name in functions() if name.isidentifier()):
            with suppress(duckdb.Error):
                found[name] = session.execute(f"SELECT {name}()").fetchall()
        for name, first in found.items():
            try:
                checked(session, f"{name}()", [], "the SQL")
            except UsageError:
                continue
            assert session.execute(f"SELECT {name}()").fetchall() == first
    finally:
        session.close()
    assert {"pi", "random", "current_localtime"} <= found.keys()


def test_the_session_itself_is_closed() -> None:
    """Should a statement ever get past the check: no file, extension, setting or variable."""
    import duckdb

    local = ROWS
    assert local.num_rows
    session = open_session()
    try:
        for statement in (
            "SELECT * FROM read_text('/etc/passwd')",
            "SELECT * FROM '/etc/passwd'",
            "COPY (SELECT 1) TO '/tmp/unloader-escape'",
            "ATTACH '/tmp/unloader-escape.db'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET enable_external_access = true",
            "SET threads = 4",
            "SELECT * FROM local",
            "SELECT * FROM ROWS",
        ):
            with pytest.raises(duckdb.Error):
                session.execute(statement).fetchall()
        settings = dict(session.execute("SELECT name, value FROM duckdb_settings()").fetchall())
        assert (settings["threads"], settings["TimeZone"]) == ("1", "UTC")
        assert settings["temp_directory"] == ""
    finally:
        session.close()
    assert not Path("/tmp/unloader-escape").exists()


HOSTILE = ['a"b', "select", "A", "a", "é ü", "1x", "", "c1", "x.y", "'); --", "new\nline", "%s {0}"]


def test_hostile_names_are_names() -> None:
    """Quotes, keywords, blanks, other scripts, and names that differ in case alone."""
    arrays = [pa.array([index]) for index in range(len(HOSTILE))]
    batch = pa.RecordBatch.from_arrays(arrays, names=HOSTILE)
    for index, name in enumerate(HOSTILE):
        if name:
            quoted = '"' + name.replace('"', '""') + '"'
            assert computed(f"{quoted} * 2", batch).to_pylist() == [index * 2]
    both = computed('"A" * 100 + "a"', batch)
    assert both.to_pylist() == [HOSTILE.index("A") * 100 + HOSTILE.index("a")]


def test_a_name_that_may_be_two_columns_is_refused() -> None:
    """Unless it is exactly one of them."""
    schema = pa.schema([pa.field(name, pa.int64()) for name in ("Ab", "aB", "x", "x")])
    assert "'Ab', 'aB'" in refused("ab", schema)
    assert "may mean" in refused("X", schema)
    columns = [*schema][:2]
    assert check(
        TransformOptions(steps=(Step(step="compute", column="n", sql="aB"),)), pa.schema(columns)
    )


EXACT: list[tuple[str, Any, pa.DataType]] = [
    ("12345678901234567890.12::DECIMAL(38,2)", Decimal("12345678901234567890.12"), pa.decimal128(38, 2)),
    ("170141183460469231731687303715884105727", "170141183460469231731687303715884105727", pa.string()),
    ("DATE '2024-02-29'", date(2024, 2, 29), pa.date32()),
    ("TIMESTAMP '2024-02-29 01:02:03.000004'", datetime(2024, 2, 29, 1, 2, 3, 4), pa.timestamp("us")),
    ("TIMESTAMPTZ '2024-01-01 00:00:00+02'", datetime(2023, 12, 31, 22, tzinfo=UTC), pa.timestamp("us", "UTC")),
    ("hour(TIMESTAMPTZ '2024-01-01 00:00:00+02')", 22, pa.int64()),
    ("TIMESTAMPTZ '2024-01-01 00:00:00+02' + INTERVAL 1 DAY", datetime(2024, 1, 1, 22, tzinfo=UTC), pa.timestamp("us", "UTC")),
    ("'a'::BLOB", b"a", pa.binary()),
    ("NULL::VARCHAR", None, pa.string()),
    ("1::TINYINT", 1, pa.int8()),
    ("'b8c1d1a0-0000-4000-8000-000000000000'::UUID", "b8c1d1a0-0000-4000-8000-000000000000", pa.string()),
    ("INTERVAL 1 MONTH", "1 month", pa.string()),
    ("'x'::ENUM('x', 'y')", "x", pa.string()),
    ("true", True, pa.bool_()),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "value", "kind"), EXACT)
def test_results_come_in_types_that_hold_them_exactly(
    sql: str, value: object, kind: pa.DataType
) -> None:
    """What Arrow does not hold exactly comes as DuckDB's text; nested values are refused."""
    found = computed(sql)
    assert found.type == kind
    assert found.to_pylist() == [value] * 3
    assert "cast it" in refused("[id, id]")


def test_infinity_goes_on_only_where_it_came_in() -> None:
    """A column that cannot be infinite never becomes the last moment of its type."""
    kind = pa.timestamp("us")
    fields = [pa.field("t", kind, metadata=INFINITE), pa.field("plain", kind)]
    ticks = pa.array([0, 2**63 - 1, None]).view(kind)
    batch = pa.RecordBatch.from_arrays(
        [ticks, ticks.slice(0, 1).take(pa.array([0, 0, 0]))], schema=pa.schema(fields)
    )
    found = computed("t + INTERVAL 1 DAY", batch)
    assert found.view(pa.int64()).to_pylist() == [86_400_000_000, 2**63 - 1, None]
    transform = TransformOptions(steps=(Step(step="compute", column="new", sql="t"),))
    assert check(transform, batch.schema).schema.field("new").metadata == {b"infinite": b"extremes"}
    with pytest.raises(OutputFailed, match="infinite"):
        computed("CASE WHEN plain IS NOT NULL THEN 'infinity'::TIMESTAMP END", batch)


@pytest.mark.parametrize(
    "sql", ["name::INTEGER", "name::DATE", "CASE WHEN id > 1 THEN name::INT END"]
)
def test_an_error_on_a_row_shows_no_value(sql: str) -> None:
    """Neither its text nor its cause shows a value."""
    batch = ROWS.set_column(1, "name", pa.array(["secret"] * 3))
    with pytest.raises(OutputFailed, match="new") as raised:
        computed(sql, batch)
    assert "secret" not in str(raised.value)
    assert raised.value.__suppress_context__
    assert raised.value.__cause__ is None


def test_a_condition_is_true_or_false() -> None:
    """A number is not a condition."""
    session = open_session()
    try:
        for sql in ("id > 1", "NULL"):
            condition = checked(session, sql, ROWS.schema.names, "it")
            check_condition(session, condition, ROWS.schema, "it")
        number = checked(session, "id", ROWS.schema.names, "it")
        with pytest.raises(UsageError, match="true or false"):
            check_condition(session, number, ROWS.schema, "it")
    finally:
        session.close()


def test_expressions_see_what_the_steps_before_made() -> None:
    """Each in turn, whether they are computed together or not."""
    steps = (
        Step(step="compute", column="ID", sql="id + 1"),
        Step(step="compute", column="twice", sql="id * 2"),
        Step(step="compute", column="name", sql="upper(name)"),
        Step(step="compute", column="both", sql="name || twice"),
    )
    found = OneBatch(TransformOptions(steps=steps), ROWS.schema, {}).one(ROWS)
    assert found.schema.names == ["id", "name", "at", "twice", "both"]
    assert found.drop_columns(["at"]).to_pylist() == [
        {"id": 2, "name": "A", "twice": 4, "both": "A4"},
        {"id": 3, "name": None, "twice": 6, "both": None},
        {"id": None, "name": "SECRET", "twice": None, "both": None},
    ]
