"""Queries of one relation, run over exact values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from oracle_server.data.catalog import View
from oracle_server.data.tables import Row, SegmentView, Table
from oracle_server.model import Column, OracleError, SessionState, Type
from oracle_server.sql.expressions.compiling import compiled
from oracle_server.sql.expressions.conversions import NUMBERS, expression_number
from oracle_server.sql.expressions.evaluation import Compiled, Environment
from oracle_server.sql.row_shaping import aggregated, first_rows, in_order, kept, projection
from oracle_server.sql.scan import RowsScan, TableScan, bounds
from oracle_server.sql.statement import Condition, Query, Relation
from oracle_server.sql.syntax import Call, Constant, Item, Name, Unsupported, conjuncts

ROWID_PARTS = {f"DBMS_ROWID.ROWID_{part}" for part in ("OBJECT", "RELATIVE_FNO", "BLOCK_NUMBER")}
_AGGREGATES = {"COUNT", "MIN", "MAX", "SUM"}


@dataclass(slots=True, kw_only=True)
class Projected:
    """Rows of a table that could be served from an encoded form of it."""

    scan: TableScan
    key: tuple[Any, ...]
    """What the values depend on beside the rows."""
    project: Callable[[Iterable[Row]], Iterable[Row]]
    needs_rowid: bool


@dataclass(slots=True, kw_only=True)
class Result:
    """What a query found. `rows` is read once."""

    columns: tuple[Column, ...]
    rows: Iterable[Row]
    projected: Projected | None = None


@dataclass(slots=True, kw_only=True)
class Context:
    """Who asks, and as of when."""

    session: SessionState
    user: str
    """Whose rights count: the session's user, or the owner of a view."""
    schema: str
    binds: Sequence[Any] = ()
    scn: int | None = None
    """From an AS OF around it."""
    dry: bool = False
    """Whether only the columns are wanted."""


Scan = TableScan | RowsScan


class Relations(Protocol):
    """The database as queries see it: what names mean, and answers that only it has."""

    scn: int

    def select(self, sql: str, context: Context) -> Result:
        """Return what a query inside another one finds."""

    def found(
        self, owner: str | None, name: str, context: Context, position: int = 0
    ) -> Table | View | None:
        """Return the table or view that a statement names, None for one of the dictionary."""

    def views(self, table: Table, scn: int | None) -> list[SegmentView]:
        """Return what is visible of every segment of a table."""

    def answer(self, session: SessionState, name: str, arguments: Sequence[Any]) -> Any:
        """Return what only the database can say: USER, SYS_CONTEXT, the SCN."""

    def check_function(self, user: str, name: str) -> None:
        """Refuse a function that a user may not call."""

    def shadow_filter(
        self,
        scan: TableScan,
        conditions: list[Condition],
        environment: Environment,
        context: Context,
    ) -> Compiled:
        """Return a filter on single rows for conditions that no expression of ours has."""


class Queries:
    """Runs queries of one relation against a database."""

    def __init__(self, database: Relations) -> None:
        """Read tables and rights there."""
        self._database = database

    def run(self, query: Query, context: Context) -> Result:
        """Return what a query finds.

        Raises:
            OracleError: As Oracle would refuse it.
            Unsupported: It needs more than this.
        """
        scan = self.scan(query.relation, context)
        environment = self.environment(query.relation, scan, context)
        if any(isinstance(item.expression, Call) for item in query.items) and all(
            isinstance(item.expression, Call) and item.expression.name in _AGGREGATES
            for item in query.items
        ):
            return self._aggregated(query, scan, environment, context)
        items = list(self._items(query.items, scan, environment))
        columns = tuple(Column(name=name, type=one.type) for name, one in items)
        query = _limited(query)
        filters = self._filters(query.conditions, scan, environment, context)
        order = self._ordering(query, items, environment)
        if context.dry:
            return Result(columns=columns, rows=())
        values = [one for _, one in items]
        needed = [*values, *filters, *(one for one, _ in order)]
        rowids = any(one.needs_rowid for one in needed)
        source = _source(query, scan, rowids, bool(filters))
        project = projection(values, len(scan.columns) + rowids)
        for condition in filters:
            source = kept(source, condition)
        if order:
            source = in_order(source, order, environment)
        rows = project(source)
        if query.distinct:
            rows = dict.fromkeys(rows)
        if query.limit is not None:
            rows = first_rows(rows, query.limit)
        result = Result(columns=columns, rows=rows)
        plain = not (filters or order or query.distinct or query.limit is not None)
        if plain and isinstance(scan, TableScan) and not any(one.volatile for one in values):
            key = tuple((item.name, item.expression, item.table) for item in query.items)
            result.projected = Projected(scan=scan, key=key, project=project, needs_rowid=rowids)
        return result

    def scan(self, relation: Relation, context: Context) -> Scan:
        """Return the rows of a relation.

        Raises:
            OracleError: ORA-00942, ORA-01031 and what is wrong with the SCN.
            Unsupported: It is a view of the dictionary.
        """
        if relation.scn is not None:
            context = self._as_of(relation, context)
        if relation.query is not None:
            inner = self.run(relation.query, context)
            return RowsScan(inner.columns, inner.rows)
        if relation.text:
            binds = context.binds[relation.first_bind :]
            inner = self._database.select(relation.text, replace(context, binds=binds))
            return RowsScan(inner.columns, inner.rows)
        if relation.name == "DUAL" and relation.owner in (None, "SYS"):
            dummy = Column(name="DUMMY", type=Type(name="VARCHAR2", length=1))
            return RowsScan((dummy,), (("X",),))
        found = self._database.found(relation.owner, relation.name, context, relation.start)
        if found is None:
            raise Unsupported(relation.name)
        if isinstance(found, View):
            return self._view(found, context)
        return self._table(found, relation, context)

    def _view(self, view: View, context: Context) -> RowsScan:
        inner = Context(
            session=context.session,
            user=view.owner,
            schema=view.owner,
            scn=context.scn,
            dry=context.dry,
        )
        result = self._database.select(view.sql, inner)
        return RowsScan(view.columns, result.rows)

    def _table(self, table: Table, relation: Relation, context: Context) -> TableScan:
        chosen = table.selected(relation.partition, relation.subpartition)
        numbers = [i for i, segment in enumerate(table.segments) if segment in chosen]
        scan = TableScan(table, self._database.views(table, context.scn), numbers)
        environment = Environment(binds=context.binds)
        if relation.sample_blocks is not None:
            scan.sample_blocks(_percent(relation.sample_blocks, environment))
        if relation.sample_rows is not None:
            scan.sample_rows(_percent(relation.sample_rows, environment))
        return scan

    def _as_of(self, relation: Relation, context: Context) -> Context:
        environment = Environment(binds=context.binds)
        if context.dry:
            environment.binds = [0] * 100
        one = compiled(relation.scn, environment)
        scn = context.scn if context.dry and one.volatile else int(one.now())
        return Context(
            session=context.session,
            user=context.user,
            schema=context.schema,
            binds=context.binds,
            scn=scn,
            dry=context.dry,
        )

    def environment(self, relation: Relation, scan: Scan, context: Context) -> Environment:
        """Return what expressions over a relation are evaluated with."""
        session = context.session
        aliases = {relation.alias} if relation.alias else {relation.name}
        return Environment(
            user=session.user,
            settings=session.settings,
            binds=[None] * 100 if context.dry and not context.binds else context.binds,
            columns=scan.columns,
            aliases=frozenset(alias for alias in aliases if alias),
            rowid=scan.rowid,
            check=lambda name: self._database.check_function(session.user, name),
            call=lambda name, arguments: self._database.answer(session, name, arguments),
        )

    @staticmethod
    def _items(
        items: tuple[Item, ...], scan: Scan, environment: Environment
    ) -> Iterator[tuple[str, Compiled]]:
        for item in items:
            if item.expression is not None:
                yield item.name, compiled(item.expression, environment)
                continue
            if item.table is not None and item.table not in environment.aliases:
                raise OracleError(904, f'"{item.table}": invalid identifier')
            for column in scan.columns:
                yield column.name, compiled(Name(column.name), environment)

    def _filters(
        self,
        conditions: tuple[Condition, ...],
        scan: Scan,
        environment: Environment,
        context: Context,
    ) -> list[Compiled]:
        """Return the conditions on single rows; those on addresses narrow the scan at once."""
        found: list[Compiled] = []
        addresses: list[tuple[str, Any]] = []
        others: list[Condition] = []
        for condition in conditions:
            try:
                if condition.expression is None:
                    raise Unsupported(condition.text)
                parts = conjuncts(condition.expression)
                ready = [compiled(part, environment) for part in parts]
                if any(one.type.name != "BOOLEAN" for one in ready):
                    raise OracleError(920, "invalid relational operator")
                for part, one in zip(parts, ready, strict=True):
                    address = _address(part, scan, environment)
                    if address is None:
                        found.append(one)
                    else:
                        addresses.append(address)
            except Unsupported:
                if not isinstance(scan, TableScan):
                    raise
                others.append(condition)
        if addresses and isinstance(scan, TableScan) and not context.dry:
            scan.restrict(*bounds(addresses))
        if others and isinstance(scan, TableScan):
            found.append(self._database.shadow_filter(scan, others, environment, context))
        return found

    @staticmethod
    def _ordering(
        query: Query, items: list[tuple[str, Compiled]], environment: Environment
    ) -> list[tuple[Compiled, bool]]:
        found = []
        for expression, descending in query.order:
            one = None
            if isinstance(expression, Constant) and isinstance(expression.value, int):
                one = items[expression.value - 1][1]
            elif isinstance(expression, Name):
                one = next((made for name, made in items if name == expression.name), None)
            found.append((one or compiled(expression, environment), descending))
        return found

    def _aggregated(
        self, query: Query, scan: Scan, environment: Environment, context: Context
    ) -> Result:
        calls = [item.expression for item in query.items]
        inner = [
            compiled(call.arguments[0], environment) if call.arguments else None for call in calls
        ]
        columns = tuple(
            Column(
                name=item.name,
                type=expression_number()
                if call.name in ("COUNT", "SUM") or one is None or one.type.name in NUMBERS
                else one.type,
            )
            for item, call, one in zip(query.items, calls, inner, strict=True)
        )
        filters = self._filters(query.conditions, scan, environment, context)
        if context.dry:
            return Result(columns=columns, rows=())
        if inner == [None] and not filters and isinstance(scan, TableScan):
            return Result(columns=columns, rows=((scan.count(),),))
        rowids = any(one is not None and one.needs_rowid for one in [*inner, *filters])
        source: Iterable[Row] = scan.rows(with_rowid=rowids)
        for condition in filters:
            source = kept(source, condition)
        return Result(columns=columns, rows=(aggregated(list(source), calls, inner),))


def _limited(query: Query) -> Query:
    """Return a query whose condition on ROWNUM became a limit, if it has one."""
    for condition in query.conditions:
        found = condition.expression
        if (
            isinstance(found, Call)
            and found.name in ("<", "<=", "=")
            and isinstance(found.arguments[0], Name)
            and found.arguments[0].name == "ROWNUM"
            and isinstance(found.arguments[1], Constant)
            and not query.order
        ):
            number = int(found.arguments[1].value) - (found.name == "<")
            others = tuple(other for other in query.conditions if other is not condition)
            limit = number if query.limit is None else min(number, query.limit)
            return replace(query, conditions=others, limit=max(limit, 0))
    return query


def _source(query: Query, scan: Scan, rowids: bool, filtered: bool) -> Iterable[Row]:
    """Return the rows to read; one for each block where only blocks are asked for."""
    blocks = query.distinct and not filtered and not query.order and _only_blocks(query)
    if blocks and isinstance(scan, TableScan) and scan.rowid.name == "ROWID":
        return scan.block_rowids()
    return scan.rows(with_rowid=rowids)


def _only_blocks(query: Query) -> bool:
    return all(
        isinstance(item.expression, Call)
        and item.expression.name in ROWID_PARTS
        and item.expression.arguments == (Name("ROWID", None),)
        for item in query.items
    )


def _percent(expression: Any, environment: Environment) -> float:
    found = float(compiled(expression, environment).now())
    if not 0.000001 <= found < 100:
        raise OracleError(30562, "SAMPLE percentage must be in the range [0.000001,100)")
    return found


def _address(expression: Any, scan: Scan, environment: Environment) -> tuple[str, Any] | None:
    """Return (operator, address) of a comparison of ROWID with a constant."""
    if not isinstance(scan, TableScan) or scan.rowid.name != "ROWID":
        return None
    if not isinstance(expression, Call) or expression.name not in ("=", "<", "<=", ">", ">="):
        return None
    left, right = expression.arguments
    if not (isinstance(left, Name) and left.name == "ROWID"):
        return None
    one = compiled(right, environment)
    if not one.constant:
        return None
    address = one.now()
    return None if address is None else (expression.name, address)
