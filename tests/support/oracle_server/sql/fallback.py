"""Everything that is no plain query of one relation: through sqlglot to DuckDB."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from oracle_server.data.catalog import View
from oracle_server.data.tables import Table
from oracle_server.dictionary.views import Dictionary
from oracle_server.model import Column, OracleError, Type
from oracle_server.sql import oracle_functions
from oracle_server.sql.expressions.conversions import varchar
from oracle_server.sql.expressions.evaluation import Compiled, Environment
from oracle_server.sql.lexer import Token, tokens
from oracle_server.sql.queries import Context, Relations, Result
from oracle_server.sql.rewriting import reference, rewritten, scn_of_alias
from oracle_server.sql.scan import TableScan
from oracle_server.sql.shadows import ORDINAL, ROWID_COLUMN, Shadows, from_duckdb, shaped
from oracle_server.sql.statement import Condition

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
        """Put shadows in the place of tables, and DuckDB's functions in that of Oracle's."""
        ours = {cte.alias_or_name.upper() for cte in tree.find_all(exp.CTE)}
        for table in list(tree.find_all(exp.Table)):
            if table.name.startswith("$shadow") or (not table.db and table.name.upper() in ours):
                continue
            self._replace_table(table, context, known)
        for name in list(tree.find_all(exp.Identifier)):
            if not name.quoted:
                name.replace(exp.to_identifier(str(name.this).upper(), quoted=True))
        session = context.session
        oracle_functions.rewrite(
            tree, lambda name, arguments: self._database.answer(session, name, arguments)
        )

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
                found.sql,
                replace(context, user=found.owner, schema=found.owner, binds=()),
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
        """Return the shadow of the segments that a scan reads, cut to nothing else."""
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
    """Return the SCN of the innermost subquery around a table that is read as of one."""
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
