"""Conditions and queries beyond our evaluator, which DuckDB runs over copies of the rows."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import islice
from threading import RLock
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.oracle import Oracle
from sqlglot.errors import SqlglotError
from sqlglot.time import format_time

from oracle_server.data.definitions import View
from oracle_server.data.moments import in_utc, nanos_of
from oracle_server.data.tables import Row, Table
from oracle_server.dictionary.views import Dictionary
from oracle_server.model import Column, DaySecond, Moment, OracleError, Type, YearMonth
from oracle_server.sql.conversions import json_text, moment_text, number_text, varchar, vector_text
from oracle_server.sql.evaluation import Compiled, Environment
from oracle_server.sql.queries import Context, Relations, Result, TableScan
from oracle_server.sql.statement import Condition
from oracle_server.sql.syntax import Token, tokens

Answer = Callable[[str, tuple[Any, ...]], Any]
_ASKED = {"SYS_CONTEXT", "USERENV", "USER", "TIMESTAMP_TO_SCN", "DBTIMEZONE"}
_ROWID_PARTS = {
    "ROWID_OBJECT": (1, 6),
    "ROWID_RELATIVE_FNO": (7, 3),
    "ROWID_BLOCK_NUMBER": (10, 6),
    "ROWID_ROW_NUMBER": (16, 3),
}
"""Place and length of each part in the text of a ROWID."""
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def rewrite(tree: exp.Expression, answer: Answer) -> None:
    """Replace functions in place; identifiers are already as the dictionary has them."""
    for select in list(tree.find_all(exp.Select)):
        _limit(select)
    for node in list(tree.walk()):
        if node.parent is None or node is tree:
            continue
        new = _replacement(node, answer)
        if new is not None:
            node.replace(new)


def _limit(select: exp.Select) -> None:
    where = select.args.get("where")
    if where is None:
        return
    kept, limit = [], None
    conditions = list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]
    for condition in conditions:
        left = condition.args.get("this")
        rownum = getattr(left, "name", "").upper() == "ROWNUM"
        right = condition.args.get("expression")
        if isinstance(condition, (exp.LT, exp.LTE, exp.EQ)) and rownum and right is not None:
            limit = int(right.name) - isinstance(condition, exp.LT)
        else:
            kept.append(condition)
    if limit is not None:
        select.set("where", exp.Where(this=exp.and_(*kept)) if kept else None)
        select.limit(limit, copy=False)


def _replacement(node: Any, answer: Answer) -> Any:
    if isinstance(node, exp.ToChar):
        return _to_char(node)
    if isinstance(node, exp.Dot):
        return _package(node, answer)
    if isinstance(node, (exp.CurrentUser, exp.SessionUser)):
        return _constant(answer("USER", ()))
    if isinstance(node, exp.Column) and not node.table and node.name in _ASKED:
        return _constant(answer(node.name, ()))
    if isinstance(node, exp.Pseudocolumn) and node.name.upper() == "ROWNUM":
        return _number_of_row()
    if isinstance(node, exp.Column) and not node.table and node.name == "ROWNUM":
        return _number_of_row()
    if isinstance(node, exp.Anonymous) and str(node.this).upper() in _ASKED:
        values = tuple(argument.name for argument in node.expressions)
        return _constant(answer(str(node.this).upper(), values))
    return None


def _number_of_row() -> Any:
    return exp.Window(this=exp.RowNumber())


def _constant(value: Any) -> Any:
    if isinstance(value, int):
        return exp.Literal.number(value)
    return exp.Null() if value is None else exp.Literal.string(str(value))


def _to_char(node: exp.ToChar) -> Any:
    mask = node.args.get("format")
    text = mask.name if mask is not None else ""
    if any(letter in text.upper() for letter in ("Y", "DD", "HH", "MI")):
        written = format_time(text, Oracle.TIME_MAPPING) or text
        return exp.Anonymous(this="STRFTIME", expressions=[node.this, exp.Literal.string(written)])
    return exp.Cast(this=node.this, to=exp.DataType.build("VARCHAR"))


def _package(node: exp.Dot, answer: Answer) -> Any:
    """Return the value of a call such as DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER()."""
    package = node.this.name.upper() if node.this is not None else ""
    call = node.expression
    name = str(call.this if isinstance(call, exp.Anonymous) else call.name).upper()
    if package == "DBMS_FLASHBACK":
        return _constant(answer(f"{package}.{name}", ()))
    if package == "DBMS_LOB" and name == "GETLENGTH":
        return exp.Anonymous(this="LENGTH", expressions=call.expressions)
    if package == "DBMS_ROWID" and name in _ROWID_PARTS:
        start, width = _ROWID_PARTS[name]
        digits = [
            f"(instr('{_DIGITS}', substr({call.expressions[0].sql('duckdb')}, {start + n}, 1)) - 1)"
            f" * {64 ** (width - 1 - n)}"
            for n in range(width)
        ]
        return sqlglot.parse_one(f"({' + '.join(digits)})", read="duckdb")
    return None


ORDINAL = "$ORDINAL"
ROWID_COLUMN = "ROWID"
_EPOCH_DAY_NANOS = 2_440_588 * 86_400 * 10**9
_KEPT = 24
_BATCH_ROWS = 50_000


class Shadows:
    """The DuckDB database; tables are made when they are first wanted and the oldest dropped."""

    def __init__(self) -> None:
        """Open an empty one in memory, when it is first used."""
        self.lock = RLock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._names: OrderedDict[tuple[Any, ...], str] = OrderedDict()
        self._numbers = 0

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection; use it with `lock` held."""
        if self._connection is None:
            self._connection = duckdb.connect(":memory:")
            self._connection.execute("SET threads = 2")
            self._connection.execute("SET TimeZone = 'UTC'")
            for statement in _MACROS:
                self._connection.execute(statement)
        return self._connection

    def name_of(
        self,
        key: tuple[Any, ...],
        columns: tuple[Column, ...],
        rows: Callable[[], Iterable[Row]],
        *,
        addressed: bool,
    ) -> str:
        """Return the name of the DuckDB table with these rows, making it if the key is new.

        Args:
            addressed: Whether the rows have an address after the columns' values.
        """
        with self.lock:
            if key in self._names:
                self._names.move_to_end(key)
                return self._names[key]
            self._numbers += 1
            name = f"$shadow_{self._numbers}"
            self._make(name, columns, rows(), addressed)
            self._names[key] = name
            while len(self._names) > _KEPT:
                _, oldest = self._names.popitem(last=False)
                self.connection.execute(f'DROP TABLE "{oldest}"')
            return name

    def _make(
        self, name: str, columns: tuple[Column, ...], rows: Iterable[Row], addressed: bool
    ) -> None:
        kept = list(columns)
        if addressed:
            kept.append(Column(name=ROWID_COLUMN, type=Type(name="VARCHAR2")))
        stored = list(rows) if _needs_all(columns) else rows
        forms = [
            _form(column.type, stored if isinstance(stored, list) else (), index)
            for index, column in enumerate(kept)
        ]
        described = ", ".join(
            f'"{column.name}" {form[0]}' for column, form in zip(kept, forms, strict=True)
        )
        connection = self.connection
        connection.execute(f'CREATE TABLE "{name}" ("{ORDINAL}" BIGINT, {described})')
        start, source = 0, iter(stored)
        while batch := list(islice(source, _BATCH_ROWS)):
            arrays = [pa.array(range(start, start + len(batch)), pa.int64())]
            for index, (_, arrow, convert) in enumerate(forms):
                values = [None if row[index] is None else convert(row[index]) for row in batch]
                arrays.append(pa.array(values, arrow))
            table = pa.Table.from_arrays(arrays, names=[f"c{n}" for n in range(len(arrays))])
            connection.register("$batch", table)
            connection.execute(f'INSERT INTO "{name}" SELECT * FROM "$batch"')
            connection.unregister("$batch")
            start += len(batch)


def _needs_all(columns: tuple[Column, ...]) -> bool:
    return any(c.type.name in ("NUMBER", "FLOAT") and _decimal(c.type) is None for c in columns)


def _decimal(kind: Type) -> tuple[int, int] | None:
    """Return precision and scale in DuckDB of a NUMBER; None if the type does not say."""
    if kind.name != "NUMBER" or kind.precision is None:
        return None
    scale = kind.scale or 0
    if scale < 0:
        precision, scale = kind.precision - scale, 0
    else:
        precision = max(kind.precision, scale)
    return (precision, scale) if precision <= 38 else None


Form = tuple[str, Any, Callable[[Any], Any]]


def _form(kind: Type, rows: Iterable[Row], index: int) -> Form:
    name = kind.name
    if name in ("NUMBER", "FLOAT"):
        return _number_form(kind, rows, index)
    if name in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        return "DOUBLE", pa.float64(), float
    if name == "DATE" or name == "TIMESTAMP":
        return "TIMESTAMP", pa.timestamp("us"), _micros
    if name == "TIMESTAMP WITH LOCAL TIME ZONE":
        return "TIMESTAMPTZ", pa.timestamp("us", "UTC"), _micros
    if name == "TIMESTAMP WITH TIME ZONE":
        return "TIMESTAMPTZ", pa.timestamp("us", "UTC"), lambda m: _micros(in_utc(m))
    if name == "INTERVAL DAY TO SECOND":
        return "INTERVAL", pa.duration("us"), _interval_micros
    if name == "INTERVAL YEAR TO MONTH":
        return "BIGINT", pa.int64(), lambda v: v.months
    if name in ("RAW", "LONG RAW"):
        return "BLOB", pa.binary(), bytes
    if name == "BLOB":
        return "BLOB", pa.binary(), lambda v: v if isinstance(v, bytes) else v.read(0, 4000)
    if name == "BOOLEAN":
        return "BOOLEAN", pa.bool_(), bool
    return "VARCHAR", pa.string(), _text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if hasattr(value, "read"):
        return str(value.read(0, 4000))
    if isinstance(value, (dict, list)):
        return json_text(value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return vector_text(value, "FLOAT64")
    return str(value)


def _micros(moment: Moment) -> int:
    return (nanos_of(moment) - _EPOCH_DAY_NANOS) // 1000


def _interval_micros(value: DaySecond) -> int:
    """Return microseconds; DuckDB has no more than 64 bits of them."""
    return min(max(value.nanos // 1000, -(2**62)), 2**62)


def _number_form(kind: Type, rows: Iterable[Row], index: int) -> Form:
    fixed = _decimal(kind)
    if fixed is None:
        fixed = _widest(row[index] for row in rows)
    if fixed is None:
        return "DOUBLE", pa.float64(), float
    precision, scale = fixed
    arrow = pa.decimal128(precision, scale)
    return f"DECIMAL({precision}, {scale})", arrow, Decimal


def _widest(values: Iterable[Any]) -> tuple[int, int] | None:
    """Return a precision and scale that hold all of the values, None if 38 digits do not."""
    whole = scale = 0
    for value in values:
        if value is None:
            continue
        exact = Decimal(value)
        exponent = exact.as_tuple().exponent
        assert isinstance(exponent, int)
        scale = max(scale, -exponent)
        whole = max(whole, exact.adjusted() + 1)
    return (38, scale) if whole + scale <= 38 else None


def from_duckdb(value: Any) -> Any:
    if isinstance(value, datetime):
        zone = None if value.tzinfo is None else "+00:00"
        fields = (value.year, value.month, value.day, value.hour, value.minute, value.second)
        return Moment(*fields, value.microsecond * 1000, zone)
    if hasattr(value, "isoformat") and hasattr(value, "year"):
        return Moment(value.year, value.month, value.day)
    if hasattr(value, "total_seconds"):
        micros = (value.days * 86_400 + value.seconds) * 10**6 + value.microseconds
        return DaySecond(micros * 1000)
    if isinstance(value, str) and not value:
        return None
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        return int(value)
    return value


def shaped(value: Any, kind: Type) -> Any:
    """Return a value in the form that a column's type wants."""
    if value is None:
        return None
    if kind.name == "INTERVAL YEAR TO MONTH" and isinstance(value, int):
        return YearMonth(value)
    if kind.name in ("NUMBER", "FLOAT") and isinstance(value, float):
        return Decimal(repr(value))
    if kind.name == "TIMESTAMP WITH LOCAL TIME ZONE":
        return value._replace(zone=None)
    return value


_MACROS = (
    "CREATE MACRO nvl(a, b) AS coalesce(a, b)",
    "CREATE MACRO nvl2(a, b, c) AS CASE WHEN a IS NOT NULL THEN b ELSE c END",
    "CREATE MACRO to_number(a) AS a::DECIMAL(38, 10)",
    "CREATE MACRO rowidtochar(a) AS a",
    "CREATE MACRO chartorowid(a) AS a",
    "CREATE MACRO regexp_like(a, b) AS regexp_matches(a, b)",
    "CREATE MACRO instr2(a, b) AS instr(a, b)",
    "CREATE MACRO bitand(a, b) AS a::BIGINT & b::BIGINT",
    "CREATE MACRO add_months(a, b) AS a + to_months(b::INTEGER)",
    "CREATE MACRO rawtohex(a) AS hex(a)",
    "CREATE MACRO ora_hash(a, b) AS hash(a) % (b + 1)",
)


_SCN = "$AS OF$"
_PARTITION = "$PARTITION$"
_SUBPARTITION = "$SUBPARTITION$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The relation of a rewritten table name."""

    name: str
    partition: str | None = None
    subpartition: str | None = None
    scn: int | None = None


def reference(name: str) -> Reference:
    name, _, scn = name.partition(_SCN)
    name, _, sub = name.partition(_SUBPARTITION)
    name, _, partition = name.partition(_PARTITION)
    return Reference(
        name=name,
        partition=partition or None,
        subpartition=sub or None,
        scn=int(scn) if scn else None,
    )


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, Decimal)):
        return number_text(value, limit=400)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Moment):
        return f"TIMESTAMP '{moment_text(value, 'YYYY-MM-DD HH24:MI:SS.FF6')}'"
    return "'" + str(value).replace("'", "''") + "'"


def rewritten(sql: str, found: list[Token], binds: Sequence[Any], first_bind: int = 0) -> str:
    """Return a statement without binds and without clauses that only Oracle has.

    Raises:
        OracleError: ORA-01008 for a bind without a value.
    """
    parts = [sql[token.start : token.stop] for token in found]
    number = first_bind
    for index, token in enumerate(found):
        if token.kind == "bind":
            if number >= len(binds):
                raise OracleError(1008, "not all variables bound")
            parts[index] = literal(binds[number])
            number += 1
        elif token.kind == "text":
            parts[index] = literal(token.value)
    for index, token in enumerate(found):
        following = found[index + 1 : index + 3]
        if token.word("AS") and len(following) == 2 and following[0].word("OF"):
            _as_of(found, parts, index)
        elif token.word("PARTITION", "SUBPARTITION") and following[0].word("("):
            if found[index - 1].kind in ("name", "quoted") and found[index + 3].word(")"):
                mark = _PARTITION if token.value == "PARTITION" else _SUBPARTITION
                _rename(found, parts, index - 1, mark + found[index + 2].value)
                parts[index : index + 4] = [""] * 4
        elif token.word("SAMPLE") and following[0].word("(", "BLOCK"):
            text = "SAMPLE option not allowed in statement with multiple table references"
            raise OracleError(30561, text, token.start)
    return " ".join(part for part in parts if part and part != ";")


def _as_of(found: list[Token], parts: list[str], index: int) -> None:
    """Take AS OF SCN n away and note n at the table or subquery before it."""
    if not found[index + 2].word("SCN"):
        raise OracleError(8180, "no snapshot found based on specified time", found[index].start)
    scn = parts[index + 3].strip("'")
    if not scn.isdigit():
        raise OracleError(8181, "specified number is not a valid system change number")
    parts[index : index + 4] = [""] * 4
    before = index - 1
    if found[before].word(")"):
        opening = _opening(found, before)
        if opening and found[opening - 1].word("PARTITION", "SUBPARTITION"):
            before = opening - 2
        else:
            parts[opening] = "(SELECT * FROM ("
            parts[before] = f') "{_SCN}{scn}")'
            return
    _rename(found, parts, before, _SCN + scn)


def _opening(found: list[Token], closing: int) -> int:
    depth = 0
    for index in range(closing, -1, -1):
        depth += found[index].word(")") - found[index].word("(")
        if depth == 0:
            return index
    raise OracleError(907, "missing right parenthesis")


def _rename(found: list[Token], parts: list[str], index: int, mark: str) -> None:
    written = parts[index]
    name = written[1:-1] if written.startswith('"') else found[index].value
    parts[index] = f'"{name}{mark}"'


def scn_of_alias(alias: str) -> int | None:
    return int(alias[len(_SCN) :]) if alias.startswith(_SCN) else None


_UNKNOWN_COLUMN = re.compile(
    r'column "?([^"\s!]+)"? (?:not found|that)|"([^"]+)" not found|a column named "([^"]+)"', re.I
)
_UNKNOWN_FUNCTION = re.compile(r"Function with name (\S+) does not exist", re.I)


class Fallback:
    """Runs statements in DuckDB over shadows of the tables they read."""

    def __init__(self, database: Relations, dictionary: Dictionary, shadows: Shadows) -> None:
        """Read tables and the dictionary there, and keep their shadows here."""
        self._database = database
        self._shadows = shadows
        self._dictionary = dictionary

    def run(self, sql: str, found: list[Token], context: Context) -> Result:
        """Return what a query finds.

        Raises:
            OracleError: As Oracle would refuse it, as near as DuckDB's own errors tell.
        """
        if context.dry and not context.binds:
            context = replace(context, binds=[None] * 100)
        tree = _parsed(rewritten(sql, found, context.binds))
        known: dict[str, Type | None] = {}
        self._rewrite(tree, context, known)
        names = _names(tree)
        text = tree.sql(dialect="duckdb")
        if context.dry:
            text = f"SELECT * FROM ({text}) LIMIT 0"
        described, rows = self._fetched(text)
        columns = tuple(_column(i, d, names, known) for i, d in enumerate(described))
        kinds = [column.type for column in columns]
        return Result(
            columns=columns,
            rows=(
                tuple(shaped(from_duckdb(v), kind) for v, kind in zip(row, kinds, strict=True))
                for row in rows
            ),
        )

    def filter(
        self,
        scan: TableScan,
        conditions: list[Condition],
        environment: Environment,
        context: Context,
    ) -> Compiled:
        """Return a filter that keeps the rows for which conditions hold in DuckDB."""
        shadow = self._shadow(scan.table, scan, context)
        alias = next(iter(environment.aliases), "T").replace('"', "")
        texts = [
            rewritten(one.text, tokens(one.text), environment.binds, one.first_bind)
            for one in conditions
        ]
        tree = _parsed(
            f'SELECT "{ROWID_COLUMN}" FROM "{shadow}" "{alias}" '
            f"WHERE {' AND '.join(f'({text})' for text in texts)}"
        )
        self._rewrite(tree, context, {})
        _, rows = self._fetched(tree.sql(dialect="duckdb") + (" LIMIT 0" if context.dry else ""))
        kept = {row[0] for row in rows}
        return Compiled(
            type=Type(name="BOOLEAN"), value=lambda row: str(row[-1]) in kept, needs_rowid=True
        )

    def _fetched(self, text: str) -> tuple[list[Any], list[tuple[Any, ...]]]:
        with self._shadows.lock:
            try:
                cursor = self._shadows.connection.execute(text)
                return list(cursor.description or ()), cursor.fetchall()
            except duckdb.Error as error:
                raise _translated(error) from error

    def _rewrite(self, tree: exp.Expression, context: Context, known: dict[str, Any]) -> None:
        """Replace tables by shadows, and Oracle's functions by DuckDB's."""
        ours = {cte.alias_or_name.upper() for cte in tree.find_all(exp.CTE)}
        for table in list(tree.find_all(exp.Table)):
            if table.name.startswith("$shadow") or (not table.db and table.name.upper() in ours):
                continue
            self._replace_table(table, context, known)
        for name in list(tree.find_all(exp.Identifier)):
            if not name.quoted:
                name.replace(exp.to_identifier(str(name.this).upper(), quoted=True))
        session = context.session
        rewrite(tree, lambda name, arguments: self._database.answer(session, name, arguments))

    def _replace_table(self, table: exp.Table, context: Context, known: dict[str, Any]) -> None:
        owner = _identifier(table.args.get("db"))
        means = reference(_identifier(table.this) or "")
        context = replace(context, scn=means.scn or _outer_scn(table) or context.scn)
        alias = table.alias or means.name
        quoted = alias if not table.alias or _quoted_alias(table) else alias.upper()
        name = exp.to_identifier(quoted, quoted=True)
        if means.name == "DUAL" and owner in (None, "SYS"):
            dual = _parsed("SELECT 'X' AS DUMMY")
            table.replace(exp.Subquery(this=dual, alias=exp.TableAlias(this=name)))
            return
        found = self._database.found(owner, means.name, context)
        if found is None:
            shadow, columns = self._dictionary_shadow(means.name, context)
        elif isinstance(found, View):
            result = self._database.select(
                found.sql, replace(context, user=found.owner, schema=found.owner, binds=())
            )
            columns = found.columns
            rows = list(result.rows)
            key = ("view", found.object_id, self._database.scn, context.scn, context.dry)
            shadow = self._shadows.name_of(key, columns, lambda: rows, addressed=False)
        else:
            chosen = found.selected(means.partition, means.subpartition)
            numbers = [i for i, segment in enumerate(found.segments) if segment in chosen]
            scan = TableScan(found, self._database.views(found, context.scn), numbers)
            shadow, columns = self._shadow(found, scan, context), found.columns
        for column in columns:
            same = known.get(column.name, column.type) == column.type
            known[column.name] = column.type if same else None
        if not isinstance(table.parent, (exp.From, exp.Join)):
            raise OracleError(900, "invalid SQL statement")
        inner = _parsed(f'SELECT * EXCLUDE ("{ORDINAL}") FROM "{shadow}"', dialect="duckdb")
        table.replace(exp.Subquery(this=inner, alias=exp.TableAlias(this=name)))

    def _shadow(self, table: Table, scan: TableScan, context: Context) -> str:
        key = (table.object_id, scan.state, tuple(scan.chosen), context.dry, table.definition_scn)
        full = TableScan(table, scan.views, scan.chosen)
        return self._shadows.name_of(
            key,
            table.columns,
            lambda: () if context.dry else full.rows(with_rowid=True),
            addressed=True,
        )

    def _dictionary_shadow(self, name: str, context: Context) -> tuple[str, tuple[Column, ...]]:
        key, columns, rows = self._dictionary.view(name, context.user, context.session)
        return self._shadows.name_of(key, columns, rows, addressed=False), columns


def _parsed(sql: str, dialect: str = "oracle") -> Any:
    try:
        return sqlglot.parse_one(sql, read=dialect)
    except SqlglotError as error:
        text = str(error)
        if "Required keyword" in text or "expression" in text.lower():
            raise OracleError(936, "missing expression") from error
        raise OracleError(933, "SQL command not properly ended") from error


def _identifier(found: Any) -> str | None:
    if found is None:
        return None
    name = str(found.this)
    return name if getattr(found, "quoted", False) else name.upper()


def _quoted_alias(table: exp.Table) -> bool:
    alias = table.args.get("alias")
    return bool(alias and isinstance(alias.this, exp.Identifier) and alias.this.quoted)


def _outer_scn(table: exp.Table) -> int | None:
    above = table.parent
    while above is not None:
        if isinstance(above, exp.Subquery):
            scn = scn_of_alias(above.alias)
            if scn is not None:
                return scn
        above = above.parent
    return None


def _names(tree: exp.Expression) -> list[str | None]:
    """Return the names of a query's columns; None from the first `*` on, where DuckDB knows."""
    select = tree
    while not isinstance(select, exp.Select):
        select = select.this
        if select is None:
            return []
    found: list[str | None] = []
    for item in select.expressions:
        if isinstance(item, exp.Star) or (
            isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
        ):
            return found
        plain = item.alias_or_name if isinstance(item, (exp.Alias, exp.Column)) else ""
        written = re.sub(r"\s", "", item.sql(dialect="oracle")).replace('"', "")
        found.append(plain or written.upper())
    return found


def _column(
    index: int, described: tuple[Any, ...], names: list[str | None], known: dict[str, Any]
) -> Column:
    name = names[index] if index < len(names) else None
    own = str(described[0])
    label = name or re.sub(r"_1$", "", own)
    duck = str(described[1])
    kind = known.get(label)
    if kind is not None and _fits(kind, duck):
        return Column(name=label, type=kind)
    return Column(name=label, type=_oracle_type(duck))


def _fits(kind: Type, duck: str) -> bool:
    """Return whether a DuckDB column may still be the Oracle column of the same name."""
    if kind.name in ("NUMBER", "FLOAT"):
        return duck.startswith(("DECIMAL", "DOUBLE", "BIGINT"))
    if kind.name.startswith(("BINARY_", "BOOLEAN")):
        return duck in ("DOUBLE", "BOOLEAN")
    if kind.name.startswith(("DATE", "TIMESTAMP")):
        return duck.startswith("TIMESTAMP")
    if kind.name in ("VARCHAR2", "CHAR", "NVARCHAR2", "NCHAR", "CLOB", "NCLOB", "LONG"):
        return duck == "VARCHAR"
    return kind.name in ("RAW", "BLOB") and duck == "BLOB"


def _oracle_type(duck: str) -> Type:
    decimal = re.match(r"DECIMAL\((\d+),\s*(\d+)\)", duck)
    if decimal:
        return Type(name="NUMBER", precision=int(decimal[1]), scale=int(decimal[2]))
    if duck in ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "HUGEINT", "UBIGINT", "UINTEGER"):
        return Type(name="NUMBER", expression=True)
    if duck in ("DOUBLE", "FLOAT"):
        return Type(name="NUMBER", expression=True)
    simple = {
        "BOOLEAN": Type(name="BOOLEAN"),
        "DATE": Type(name="DATE"),
        "BLOB": Type(name="RAW", length=2000),
        "INTERVAL": Type(name="INTERVAL DAY TO SECOND", precision=9, scale=6),
        "TIMESTAMP": Type(name="TIMESTAMP", scale=6),
        "TIMESTAMP WITH TIME ZONE": Type(name="TIMESTAMP WITH TIME ZONE", scale=6),
    }
    return simple.get(duck, varchar(1000))


def _translated(error: duckdb.Error) -> OracleError:
    text = str(error).strip()
    function = _UNKNOWN_FUNCTION.search(text)
    if function:
        return OracleError(904, f'"{function[1].upper()}": invalid identifier')
    column = _UNKNOWN_COLUMN.search(text)
    if column and isinstance(error, duckdb.BinderException):
        return OracleError(904, f'"{column[1] or column[2] or column[3]}": invalid identifier')
    if isinstance(error, duckdb.ConversionException):
        return OracleError(1722, "invalid number")
    if "GROUP BY" in text:
        return OracleError(979, "not a GROUP BY expression")
    if isinstance(error, duckdb.ParserException):
        return OracleError(933, "SQL command not properly ended")
    return OracleError(932, f"inconsistent datatypes ({text.splitlines()[0]})")
