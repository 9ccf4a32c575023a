"""What a driver is asked in each kind of database, so that no value changes on its way.

A driver may round, cut or reinterpret values: a dialect that was tried against the database reads
each value in a form that its drivers leave alone, and `texts` makes the value of it. Columns
have the types and the forms that the database's own source gives them.

Any other database has the dialect `generic`. Values come as its driver returns them, and columns
are marked as not proved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from partition_planner.model import ColumnInfo
from unloader.errors import SnapshotGone, SourceError
from unloader.model import Extract, ReadColumn, SampledKeys, Snapshot, TableSummary
from unloader.request.names import Folding
from unloader.sources.dialects.dividing import KeyKind
from unloader.sources.dialects.texts import generic_type
from unloader.sources.mysql import statement as mysql
from unloader.sources.postgres import statement as postgres
from unloader.sources.readings import ColumnReadings, Reading
from unloader.sources.sqlite import statement as sqlite
from unloader.sources.statement import check_distinct, derived_table, literal, quoted

if TYPE_CHECKING:
    import pyarrow as pa

STATEMENT = "statement"
"""The kind of a snapshot without a snapshot: one statement reads the only table, at its moment."""

LENGTHS = (4 * 1024, 128 * 1024, 4 * 1024**2)
"""Bytes of a value in the first buffers of a driver, and in the buffers of the next readings."""
LONG = "!"
"""Arrives instead of a value that is longer than the buffer of its column."""

REFUSED = (
    *("does not exist", "denied", "authentication failed", "no password supplied"),
    "no pg_hba.conf entry",
)
"""Words of errors that connecting again does not mend."""

NOT_PROVED = "not proved: the values are as the driver returns them"


class TooLong(SourceError):
    """A value is longer than the buffer of its column."""


class Session(Protocol):
    """A connection of a driver; its errors are the user's."""

    ascii_only: bool
    """Texts arrive unharmed only if they are ASCII."""
    vendor: str
    """Name and version of the database, as far as the driver knows them."""

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a short result."""

    def execute(self, sql: str) -> None:
        """Run a statement without a result."""

    def schema(self, sql: str) -> pa.Schema:
        """Return the columns of a query as the driver would return them."""

    def tables(self) -> tuple[TableSummary, ...]:
        """Return the tables and views, for a database of an unknown kind."""

    def columns(self, schema: str | None, name: str, relation: str) -> pa.Schema:
        """Return the columns of a table, for a database of an unknown kind."""

    def batches(self, sql: str, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query."""

    def cancel(self) -> None:
        """Make the call that another thread waits for raise soon; never raise."""

    def close(self) -> None:
        """Never raise."""


class Dialect:
    """A database of an unknown kind; the others are subclasses."""

    name = "generic"
    folding: Folding = "any"
    texts = False
    """Values arrive as texts, which `texts` reads."""
    samples = False
    """Rows can be limited by LIMIT, and SQL can choose them by `sampled_keys`."""
    marks_long = False
    """Texts in hexadecimal have a limit for each column, and `LONG` instead of a longer value."""
    opening: tuple[str, ...] = ()
    """What each session runs first."""
    exports = ""
    """A query of the name of a snapshot that other sessions can enter; empty where none can."""
    begin = ""
    """Begins the transaction that has the snapshot."""
    version = ""
    """A query of the name and version of the server."""
    identity = ""
    """A query of the number of a session; empty where its statements cannot be ended."""
    kill = ""
    """The statement that ends the statement of the session `{}`."""

    def __init__(self, quote: str = '"') -> None:
        self.quote = quote

    def quoted(self, name: str) -> str:
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def qualified(self, schema: str | None, name: str) -> str:
        return f"{self.quoted(schema)}.{self.quoted(name)}" if schema else self.quoted(name)

    def relation(self, extract: Extract) -> str:
        if extract.query is not None:
            return derived_table(extract.query)
        return self.qualified(extract.table.schema, extract.table.name)

    def default_schemas(self, session: Session) -> tuple[str, ...]:
        """Return the schemas in which a name without one is searched."""
        return tuple(dict.fromkeys(table.schema or "" for table in session.tables()))

    def tables(self, session: Session) -> tuple[TableSummary, ...]:
        return session.tables()

    def columns(self, session: Session, schema: str | None, name: str) -> tuple[ColumnInfo, ...]:
        return _arrow_columns(session.columns(schema, name, self.qualified(schema, name)))

    def query_columns(self, session: Session, query: str) -> tuple[ColumnInfo, ...]:
        found = session.schema(f"SELECT * FROM {derived_table(query)} WHERE 1 = 0")
        check_distinct(found.names)
        return _arrow_columns(found)

    def explain(self, session: Session, sql: str) -> None:
        """Have the database parse a query without running it."""
        session.schema(f"SELECT * FROM ({sql}) AS unloader_checked WHERE 1 = 0")

    def readings(self, column: ColumnInfo, relation: str) -> ColumnReadings:
        output = generic_type(column.native_type)
        if output is None:
            raise SourceError(
                f"column {column.name} has the type {column.native_type}, which cannot be read "
                "exactly",
                f"leave it out with --exclude {column.name}",
            )
        usual = Reading(
            expression=self.quoted(column.name),
            output_type=output,
            as_text=False,
            lossless=False,
            note=NOT_PROVED,
            metadata=(("source_type", column.native_type),),
        )
        return ColumnReadings(
            name=column.name,
            source_type=column.native_type,
            nullable=column.nullable,
            readings=(usual, replace(usual, output_type="string", as_text=True)),
        )

    def item(self, column: ReadColumn, *, ascii_only: bool, most: int) -> str:
        """Return the item of the select list for a column, whose values have `most` bytes."""
        return column.expression

    def frame(self, column: ReadColumn, most: int) -> str:
        """Return the item of the row before the rows of a statement; empty without such a row."""
        return ""

    def length(self, column: ReadColumn) -> str:
        """Return SQL for the bytes of a value of variable length; empty where none is known."""
        return ""

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        """Return the sample of a column's values; None if they cannot be keys."""
        return None

    def key_kind(self, column: ColumnInfo) -> KeyKind | None:
        """Return how a key of a column is written; None if its values are not for ranges."""
        output = generic_type(column.native_type) or ""
        if re.match(r"u?int|decimal", output):
            return "number"
        return "text" if re.match(r"string|date|timestamp\[\w+\]$", output) else None

    def key(self, column: ColumnInfo) -> str:
        """Return SQL for the keys of a column, in the order of the column."""
        return self.quoted(column.name)

    def key_text(self, value: str) -> str:
        """Return SQL for the text of a key."""
        return value

    def key_condition(self, column: str, kind: KeyKind) -> str:
        """Return the SQL of the values that may divide a column; empty for all."""
        return ""

    def entering(self, snapshot: Snapshot | None) -> tuple[str, ...]:
        """Return what a session runs to read at a snapshot."""
        return ()

    def hold(self, session: Session, extract: Extract) -> None:
        """Keep the rows of a table as in the snapshot that `session` has exported."""
        return

    def hides_columns(self, session: Session, extract: Extract) -> bool:
        """Return whether a table has columns that `columns` leaves out for want of a right."""
        return False

    def check_ended(self, session: Session) -> None:
        """Raise `SourceError` if the statement that ended has changed a value."""
        return


def _arrow_columns(schema: pa.Schema) -> tuple[ColumnInfo, ...]:
    return tuple(
        ColumnInfo(
            name=field.name, native_type=str(field.type), nullable=None if field.nullable else False
        )
        for field in schema
    )


def _narrow(output: str) -> bool:
    """Return whether the text of a value is ASCII and shorter than `NARROW` characters."""
    return output not in ("string", "binary")


NARROW = 100
_KEY_CHARACTERS = 60
"""Longer keys divide nothing: drivers report a length of 255 bytes for an expression."""
_INTEGER_OR_DECIMAL = re.compile(r"u?int\d+|decimal128.*")


_LENGTH = re.compile(r"character(?: varying)?\((\d+)\)")
_LONGEST = 10_485_760
"""The longest varchar that can be declared."""


class PostgreSQL(Dialect):
    name = "postgresql"
    folding: Folding = "lower"
    texts = True
    samples = True
    marks_long = True
    opening = (
        "SET application_name = 'unloader'",
        "SET client_encoding = 'UTF8'",
        "SET statement_timeout = 0",
        "SET idle_in_transaction_session_timeout = 0",
        "SET default_transaction_read_only = on",
        "SET row_security = off",
        "SET TimeZone = 'UTC'",
        "SET DateStyle = 'ISO, YMD'",
        "SET IntervalStyle = 'postgres'",
        "SET bytea_output = 'hex'",
        "SET extra_float_digits = 1",
        "SET quote_all_identifiers = off",
        "SET standard_conforming_strings = on",
        "SET array_nulls = on",
        "SET gin_fuzzy_search_limit = 0",
        "SET synchronize_seqscans = off",
        # The server ends the statement of a client that was killed. Not all versions know it.
        "SELECT pg_catalog.set_config(name, '10s', false) FROM pg_catalog.pg_settings "
        "WHERE name = 'client_connection_check_interval'",
    )
    exports = "SELECT pg_catalog.pg_export_snapshot()::pg_catalog.text"
    version = (
        "SELECT ('PostgreSQL ' || pg_catalog.current_setting('server_version'))::pg_catalog.text"
    )
    identity = "SELECT pg_catalog.pg_backend_pid()"
    kill = "SELECT pg_catalog.pg_cancel_backend({})"
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

    def default_schemas(self, session: Session) -> tuple[str, ...]:
        found = session.rows(
            "SELECT s::pg_catalog.text FROM unnest(pg_catalog.current_schemas(false)) "
            "WITH ORDINALITY AS u (s, n) ORDER BY n"
        )
        return tuple(schema for (schema,) in found)

    def tables(self, session: Session) -> tuple[TableSummary, ...]:
        found = session.rows(
            "SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text, CASE c.relkind "
            "WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view' WHEN 'f' THEN 'foreign table' "
            "WHEN 'm' THEN 'materialized view' ELSE 'table' END "
            "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema' "
            "AND n.nspname !~ '^pg_' AND NOT c.relispartition "
            "AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') "
            "AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT') "
            'ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"'
        )
        return _summaries(found)

    def columns(self, session: Session, schema: str | None, name: str) -> tuple[ColumnInfo, ...]:
        table = literal(self.qualified(schema, name))
        found = session.rows(
            "SELECT a.attname::pg_catalog.text, "
            "pg_catalog.format_type(a.atttypid, a.atttypmod)::pg_catalog.text, "
            "(CASE WHEN a.attnotnull THEN 1 ELSE 0 END)::integer, "
            f"{self._base('a.atttypid', 'a.atttypmod')} FROM pg_catalog.pg_attribute a "
            f"WHERE a.attrelid = {table}::pg_catalog.regclass AND a.attnum > 0 "
            "AND NOT a.attisdropped ORDER BY a.attnum"
        )
        return tuple(
            _column(name, native, base, nullable=not int(required))
            for name, native, required, base in found
        )

    def query_columns(self, session: Session, query: str) -> tuple[ColumnInfo, ...]:
        # Bare first, for `SELECT 1) AS a, (SELECT 2` is another query in parentheses.
        self.explain(session, query.strip().rstrip(";") + "\n")
        relation, names = derived_table(query), list[str]()
        if session.ascii_only:
            # The library of ODBC aborts on some types. A row as JSON has all names in order.
            found = session.rows(
                "SELECT pg_catalog.json_object_keys(row)::pg_catalog.text FROM (SELECT "
                "pg_catalog.row_to_json(unloader_row) AS row "
                f"FROM (SELECT * FROM {relation} LIMIT 1) AS unloader_row) AS rows"
            )
            names = [name for (name,) in found]
        names = names or session.schema(f"SELECT * FROM {relation} LIMIT 0").names
        check_distinct(names)
        # A row of NULLs has the types, and the query is not run.
        items = []
        for name in names:
            kind = f"pg_catalog.pg_typeof(query.{quoted(name)})::pg_catalog.oid"
            items += [f"pg_catalog.format_type({kind}, NULL)::pg_catalog.text"]
            items += [self._base(kind, "-1")]
        (row,) = session.rows(
            f"SELECT {', '.join(items)} FROM (SELECT 1) AS one "
            f"LEFT JOIN {derived_table(query)} ON false"
        )
        types = list(row)
        return tuple(
            _column(name, native, base, nullable=None)
            for name, native, base in zip(names, types[::2], types[1::2], strict=True)
        )

    def _base(self, oid: str, typmod: str) -> str:
        """Return SQL for the type behind any domains."""
        return (
            "(WITH RECURSIVE chain (o, m, n) AS (SELECT "
            f"{oid}, {typmod}, 0 UNION ALL SELECT t.typbasetype, CASE WHEN t.typtypmod >= 0 "
            "THEN t.typtypmod ELSE chain.m END, n + 1 FROM pg_catalog.pg_type t JOIN chain "
            "ON t.oid = chain.o AND t.typtype = 'd') SELECT pg_catalog.format_type(o, m) "
            "FROM chain ORDER BY n DESC LIMIT 1)::pg_catalog.text"
        )

    def explain(self, session: Session, sql: str) -> None:
        session.execute(f"EXPLAIN {sql}")

    def readings(self, column: ColumnInfo, relation: str) -> ColumnReadings:
        found = postgres.readings_of(column)
        # COPY brings encoded text and raw bytes; a second session of libpq reads large objects.
        kept = tuple(each for each in found.readings if not each.serves & {"encoded", "lob"})
        return replace(found, readings=kept)

    def item(self, column: ReadColumn, *, ascii_only: bool, most: int) -> str:
        value, output = column.expression, column.output_type
        if _narrow(output):
            # Its length lets a driver use a short buffer. No value is as long.
            return f"({value})::varchar({NARROW})"
        shown = self._shown(value)
        if not ascii_only:
            return shown
        digits, length = shown, 2 * most
        if output != "binary":
            digits = f"pg_catalog.encode(pg_catalog.convert_to({shown}, 'UTF8'), 'hex')"
        declared = _LENGTH.fullmatch(column.source_type)
        if declared and 8 * int(declared[1]) <= length:
            # A character has at most 4 bytes, so the cast cuts nothing.
            return f"({digits})::varchar({8 * int(declared[1])})"
        is_long = f"pg_catalog.octet_length({digits}) OPERATOR(pg_catalog.>) {length}"
        marked = f"CASE WHEN {is_long} THEN '{LONG}' ELSE {digits} END"
        return f"({marked})::varchar({length})" if length <= _LONGEST else marked

    def _shown(self, value: str) -> str:
        # Unlike a cast to text, `concat` keeps the blanks of a `char(n)`.
        is_value = f"pg_catalog.num_nulls({value}) OPERATOR(pg_catalog.=) 0"
        return f"CASE WHEN {is_value} THEN pg_catalog.concat({value}) END"

    def length(self, column: ReadColumn) -> str:
        shown = self._shown(column.expression)
        if column.output_type == "binary":
            return f"pg_catalog.octet_length({shown}) / 2"
        return "" if _narrow(column.output_type) else f"pg_catalog.octet_length({shown})"

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        return postgres.sampled_keys(column, share)

    def key_kind(self, column: ColumnInfo) -> KeyKind | None:
        base = postgres.base_type(column)
        if base in ("smallint", "integer", "bigint") or base.startswith("numeric"):
            return "number"
        texts = ("text", "character", "bpchar", "name", "date", "timestamp", "uuid")
        return "text" if base.startswith(texts) else None

    def key(self, column: ColumnInfo) -> str:
        # The server has no min() of a uuid.
        uuid = postgres.base_type(column) == "uuid"
        found = self.quoted(column.name)
        return f'({found}::pg_catalog.text COLLATE "C")' if uuid else found

    def key_text(self, value: str) -> str:
        return f"({value})::pg_catalog.text"

    def key_condition(self, column: str, kind: KeyKind) -> str:
        return f"pg_catalog.length(({column})::pg_catalog.text) <= {_KEY_CHARACTERS}"

    def entering(self, snapshot: Snapshot | None) -> tuple[str, ...]:
        if snapshot is None or snapshot.kind != postgres.EXPORTED:
            return ()
        return (self.begin, f"SET TRANSACTION SNAPSHOT {literal(snapshot.value)}")

    def hold(self, session: Session, extract: Extract) -> None:
        """Lock tables against TRUNCATE and ALTER TABLE, which empty them for older snapshots.

        EXPLAIN takes the locks of a SELECT, also for materialized views and for tables of a query.
        """
        self.explain(session, f"SELECT 1 FROM {self.relation(extract)}")
        # The catalog is the snapshot's, and the function answers for the present.
        changed = session.rows(
            "SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_locks l LEFT JOIN "
            "pg_catalog.pg_class c ON c.oid = l.relation "
            "WHERE l.pid = pg_catalog.pg_backend_pid() AND l.relation >= 16384 AND (c.oid IS NULL "
            "OR c.relkind IN ('r', 'm') AND pg_catalog.pg_relation_filenode(c.oid) "
            "IS DISTINCT FROM c.relfilenode) LIMIT 1"
        )
        if changed:
            raise SnapshotGone(
                f"{changed[0][0] or extract.table.label} was truncated, rewritten or replaced "
                "after the snapshot",
                "run again",
            )


def _column(name: str, native: str, base: str, *, nullable: bool | None) -> ColumnInfo:
    facts = () if base == native else (("base_type", base),)
    return ColumnInfo(name=name, native_type=native, nullable=nullable, attributes=facts)


def _summaries(rows: Sequence[tuple[Any, ...]]) -> tuple[TableSummary, ...]:
    return tuple(
        TableSummary(
            schema=schema or None, name=name, kind=kind, rows=None, bytes=None, partitions=0
        )
        for schema, name, kind in rows
    )


class SQLite(Dialect):
    """A value comes with the letter of its storage class; texts and blobs in hexadecimal digits.

    SQLite types values, not columns. A real has 21 digits, and 17 are enough: SQLite computes them
    with at least 64 bits of mantissa.
    """

    name = "sqlite"
    texts = True
    marks_long = True
    version = "SELECT 'SQLite ' || sqlite_version()"

    def __init__(self) -> None:
        super().__init__()
        marks = ["'t'"] * (2 + len(LENGTHS))
        self.opening = (
            "PRAGMA temp_store = memory",
            "PRAGMA busy_timeout = 5000",
            # Drivers take the type and the length of a result from the first of several SELECTs.
            "CREATE TEMP TABLE IF NOT EXISTS unloader_frame "
            f"(short varchar({NARROW}), long varchar({2**30}), "
            f"{', '.join(f'long{most} varchar({2 * most + 1})' for most in LENGTHS)})",
            "DELETE FROM temp.unloader_frame",
            f"INSERT INTO temp.unloader_frame VALUES ({', '.join(marks)})",
        )

    def item(self, column: ReadColumn, *, ascii_only: bool, most: int) -> str:
        if not ascii_only or _narrow(column.output_type):
            return column.expression
        length = f"length(CAST({quoted(column.name)} AS BLOB))"
        return f"CASE WHEN {length} > {most} THEN '{LONG}' ELSE {column.expression} END"

    def frame(self, column: ReadColumn, most: int) -> str:
        if _narrow(column.output_type):
            return "short"
        return f"long{most}" if most in LENGTHS else "long"

    def length(self, column: ReadColumn) -> str:
        return "" if _narrow(column.output_type) else f"length({column.expression}) / 2"

    def default_schemas(self, session: Session) -> tuple[str, ...]:
        return ("main",)

    def tables(self, session: Session) -> tuple[TableSummary, ...]:
        found = session.rows(
            "SELECT 'main', name, CASE WHEN type = 'view' THEN 'view' "
            "WHEN sql LIKE 'CREATE VIRTUAL %' THEN 'virtual table' ELSE 'table' END "
            "FROM main.sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE "
            "'sqlite^_%' ESCAPE '^' ORDER BY name"
        )
        return _summaries(found)

    def columns(self, session: Session, schema: str | None, name: str) -> tuple[ColumnInfo, ...]:
        ((encoding,),) = session.rows("SELECT encoding FROM pragma_encoding")
        found = session.rows(
            "SELECT name, coalesce(type, ''), \"notnull\" FROM "
            f"pragma_table_xinfo({literal(name)}, {literal(schema or 'main')}) "
            "WHERE hidden <> 1 ORDER BY cid"
        )
        is_table = session.rows(
            f"SELECT 1 FROM main.sqlite_master WHERE type = 'table' AND name = {literal(name)}"
        )
        return tuple(
            ColumnInfo(
                name=column,
                native_type=declared,
                nullable=None if not_null is None else not int(not_null),
                attributes=(
                    ("encoding", encoding),
                    # A column of a view that is an expression is called BLOB, too.
                    (
                        sqlite.READING,
                        "exact"
                        if not is_table and sqlite.reading_of(declared) == "blob"
                        else sqlite.reading_of(declared),
                    ),
                ),
            )
            for column, declared, not_null in found
        )

    def query_columns(self, session: Session, query: str) -> tuple[ColumnInfo, ...]:
        self.explain(session, query.strip().rstrip(";") + "\n")
        names = session.schema(f"SELECT * FROM {derived_table(query)} LIMIT 0").names
        check_distinct(names)
        session.execute("DROP VIEW IF EXISTS temp.unloader_query")
        session.execute(f"CREATE TEMP VIEW unloader_query AS SELECT * FROM {derived_table(query)}")
        found = self.columns(session, "temp", "unloader_query")
        session.execute("DROP VIEW temp.unloader_query")
        return tuple(replace(column, name=name) for column, name in zip(found, names, strict=True))

    def explain(self, session: Session, sql: str) -> None:
        session.execute(f"EXPLAIN {sql}")

    def readings(self, column: ColumnInfo, relation: str) -> ColumnReadings:
        found = sqlite.readings_of(column, relation)
        value = sqlite.value_of(column.name, relation)
        letter = {"UTF-16le": "u", "UTF-16be": "w"}.get(dict(column.attributes)["encoding"], "t")
        # Texts of SQLite have no sign of a zero. Columns of reals store no negative zero.
        is_real = dict(column.attributes).get(sqlite.READING) == "real"
        negative = f"{value} = 0 AND atan2({value}, -1) < 0"
        minus = "" if is_real else f"CASE WHEN {negative} THEN '-' ELSE '' END || "

        def item(reading: Reading) -> str:
            numbers = (
                f"CASE typeof({value}) WHEN 'integer' THEN 'i' || {value} WHEN 'real' THEN 'r' || "
                f"{minus}printf('%!.20e', {value})"
            )
            if _narrow(reading.output_type):
                # A value of another class is refused, so its letter is enough.
                return f"{numbers} WHEN 'text' THEN 't' WHEN 'blob' THEN 'b' END"
            exact = EXACT if _is_exact(reading.expression) else ""
            others = (
                f"WHEN 'text' THEN '{letter}' || hex({value}) WHEN 'blob' THEN 'b' || hex({value})"
            )
            return f"{exact}{numbers} {others} END"

        return replace(
            found, readings=tuple(replace(each, expression=item(each)) for each in found.readings)
        )

    def key_kind(self, column: ColumnInfo) -> KeyKind | None:
        kind = dict(column.attributes).get(sqlite.READING)
        return "number" if kind == "integer" else "text" if kind != "blob" else None

    def key_text(self, value: str) -> str:
        return f"CAST({value} AS TEXT)"

    def key_condition(self, column: str, kind: KeyKind) -> str:
        if kind == "number":
            return f"typeof({column}) = 'integer'"
        return f"typeof({column}) = 'text' AND length({column}) <= {_KEY_CHARACTERS}"


EXACT = "/* exact text */ "


def _is_exact(expression: str) -> bool:
    return "exact text" in expression[:20]


class MariaDB(Dialect):
    """MariaDB, whose text of a value is exact; its drivers' buffers are not."""

    name = "mariadb"
    texts = True
    samples = True
    marks_long = True
    opening = (mysql.SETTINGS, mysql.SETTINGS_OF_MARIADB, mysql.READ_ONLY)
    version = "SELECT concat('MariaDB ', version())"
    identity = "SELECT connection_id()"
    kill = "KILL QUERY {}"

    def default_schemas(self, session: Session) -> tuple[str, ...]:
        ((schema,),) = session.rows("SELECT database()")
        return (schema,) if schema else ()

    def tables(self, session: Session) -> tuple[TableSummary, ...]:
        found = session.rows(
            "SELECT table_schema, table_name, CASE WHEN table_type = 'VIEW' THEN 'view' "
            "ELSE 'table' END FROM information_schema.tables WHERE table_type IN "
            "('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED') AND table_schema NOT IN ('mysql', "
            "'information_schema', 'performance_schema', 'sys') ORDER BY table_schema, table_name"
        )
        return _summaries(found)

    def columns(self, session: Session, schema: str | None, name: str) -> tuple[ColumnInfo, ...]:
        found = session.rows(
            "SELECT column_name, CAST(column_type AS CHAR(8000)), is_nullable FROM "
            f"information_schema.columns WHERE table_schema = {mysql.text_literal(schema or '')} "
            f"AND table_name = {mysql.text_literal(name)} ORDER BY ordinal_position"
        )
        return tuple(
            ColumnInfo(name=name, native_type=native, nullable=nullable == "YES")
            for name, native, nullable in found
        )

    def query_columns(self, session: Session, query: str) -> tuple[ColumnInfo, ...]:
        self.explain(session, query.strip().rstrip(";") + "\n")
        found = session.schema(f"SELECT * FROM {derived_table(query)} LIMIT 0")
        check_distinct(found.names)
        return tuple(
            ColumnInfo(name=field.name, native_type=_of_arrow(str(field.type))) for field in found
        )

    def explain(self, session: Session, sql: str) -> None:
        # Newer drivers have the error only with the rows.
        session.rows(f"EXPLAIN {sql}")

    def readings(self, column: ColumnInfo, relation: str) -> ColumnReadings:
        return mysql.readings_of(column)

    def item(self, column: ReadColumn, *, ascii_only: bool, most: int) -> str:
        value, output = column.expression, column.output_type
        if _narrow(output):
            return f"CAST({value} AS CHAR({NARROW}))"
        shown = self._bytes(column)
        either = f"IF(LENGTH({shown}) > {most}, '{LONG}', HEX({shown}))"
        return f"CAST({either} AS CHAR({2 * most}))"

    def _bytes(self, column: ReadColumn) -> str:
        value = column.expression
        is_binary = column.output_type == "binary"
        return f"CAST({value} AS BINARY)" if is_binary else f"CONVERT({value} USING utf8mb4)"

    def length(self, column: ReadColumn) -> str:
        return "" if _narrow(column.output_type) else f"LENGTH({self._bytes(column)})"

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        return mysql.sampled_keys(column, share)

    def key_kind(self, column: ColumnInfo) -> KeyKind | None:
        name = mysql.name_of(column.native_type)
        if mysql.integer_type(column.native_type) or name in ("decimal", "numeric"):
            return "number"
        # An enum is sorted by number and compared as text.
        return "text" if name in mysql.KEY_TYPES and "binary" not in name else None

    def key_text(self, value: str) -> str:
        return f"CAST({value} AS CHAR)"

    def key_condition(self, column: str, kind: KeyKind) -> str:
        return f"char_length({column}) <= {_KEY_CHARACTERS}"

    def hides_columns(self, session: Session, extract: Extract) -> bool:
        try:
            session.rows(f"SELECT * FROM {self.relation(extract)} LIMIT 0")
        except SourceError as error:
            return "denied" in error.message
        return False

    def check_ended(self, session: Session) -> None:
        for _, code, text in session.rows("SHOW WARNINGS"):
            if int(code) == mysql.CUT:
                raise SourceError(
                    f"the server may have replaced a value by NULL: {text}",
                    "raise max_allowed_packet on the server to more than twice --odbc-value-bytes, "
                    "or lower that option to the bytes of the longest value",
                )


def _of_arrow(kind: str) -> str:
    """Return a type of MariaDB whose reading has all values that the driver reports as `kind`."""
    if match := re.fullmatch(r"decimal\d+\((\d+), (\d+)\)", kind):
        return f"decimal({match[1]},{match[2]})"
    if kind.startswith("timestamp"):
        return "datetime"
    # The driver does not report that a number has no sign.
    known = {"int8": "smallint", "int16": "int", "int32": "bigint", "int64": "decimal(20,0)"}
    known |= {"float": "float", "double": "double", "date32[day]": "date", "bool": "bit"}
    return known.get(kind, "longblob" if "binary" in kind else "longtext")


DIALECTS: dict[str, type[Dialect]] = {
    "postgresql": PostgreSQL,
    "sqlite": SQLite,
    "mariadb": MariaDB,
    "generic": Dialect,
}
