"""Queries over the tables that they name: rows scanned, filtered, and shaped."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from operator import itemgetter
from typing import Any, Protocol

from oracle_server.data.definitions import View
from oracle_server.data.tables import Row, SegmentView, Slice, Table
from oracle_server.model import Column, OracleError, Rowid, SessionState, Type
from oracle_server.sql.compiling import comparable, compiled
from oracle_server.sql.conversions import expression_number
from oracle_server.sql.evaluation import Compiled, Environment
from oracle_server.sql.statement import Condition, Query, Relation
from oracle_server.sql.syntax import Call, Constant, Item, Name, Unsupported, conjuncts

Bound = tuple[int, int, int, int]


class RowsScan:
    """Rows that something else made: a subquery, DUAL."""

    def __init__(self, columns: tuple[Column, ...], rows: Iterable[Row]) -> None:
        self.columns = columns
        self.rowid: Type | None = None
        self._rows = rows

    def rows(self, *, with_rowid: bool) -> Iterator[Row]:
        return iter(self._rows)


class TableScan:
    """The rows of a table's segments at one SCN."""

    def __init__(self, table: Table, views: list[SegmentView], chosen: list[int]) -> None:
        """Store the visible rows of every segment, and the numbers of the segments to read."""
        self.table = table
        self.columns = table.columns
        self.rowid = Type(name="UROWID" if table.organization == "index" else "ROWID")
        self.views = views
        self.chosen = chosen
        self._ranges: dict[int, list[Slice]] = {n: [(0, views[n].count)] for n in chosen}
        self._sampled: float | None = None
        self.whole = True
        """Whether nothing was cut off the chosen segments."""

    @property
    def state(self) -> tuple[tuple[int, int], ...]:
        """What changes with the visible rows of the whole table."""
        return tuple((view.segment.data_object_id, view.version) for view in self.views)

    def restrict(self, low: Bound | None, high: Bound | None) -> None:
        """Keep the addresses from `low` to below `high`; heap tables only."""
        self.whole = False
        for number in self.chosen:
            segment = self.views[number].segment
            mine = segment.data_object_id
            start = stop = None
            if low is not None:
                start = low[1:] if low[0] == mine else None
            if high is not None:
                stop = high[1:] if high[0] == mine else None
            outside = (low is not None and low[0] > mine) or (high is not None and high[0] < mine)
            found = [] if outside else list(segment.layout.between(start, stop))
            self._ranges[number] = _within(found, self.views[number].count)

    def sample_blocks(self, percent: float) -> None:
        """Keep about that many blocks of a hundred, always the same ones."""
        self.whole = False
        for number in self.chosen:
            view = self.views[number]
            if self.table.organization == "index":
                self._sampled = percent
                continue
            self._ranges[number] = [
                (start, stop)
                for file, block, start, stop in view.segment.layout.blocks(view.count)
                if _drawn((file, block), percent)
            ]

    def sample_rows(self, percent: float) -> None:
        """Keep about that many rows of a hundred, always the same ones."""
        self.whole = False
        self._sampled = percent

    def count(self) -> int:
        if self._sampled is not None:
            return sum(1 for _ in self.rows(with_rowid=False))
        return sum(
            stop - start
            for number in self.chosen
            for start, stop in self.views[number].ordinals(self._ranges[number])
        )

    def slices(self) -> list[Slice] | None:
        """Return the remaining rows as ranges in physical order.

        None if they are not a few ranges: samples of rows, index-organized tables.
        """
        if self._sampled is not None or self.table.organization == "index":
            return None
        found: list[Slice] = []
        before = 0
        for number, view in enumerate(self.views):
            if number in self._ranges:
                for start, stop in view.ordinals(self._ranges[number]):
                    found.append((before + start, before + stop))
            before += len(view)
        return found

    def block_rowids(self) -> Iterator[Row]:
        """Yield one row for each block with rows, with only the address right."""
        nothing = (None,) * len(self.columns)
        for number in self.chosen:
            segment = self.views[number].segment
            for start, stop in self._ranges[number]:
                step = segment.layout.rows_per_block
                for position in range(start, stop, step):
                    yield (*nothing, segment.layout.rowid(segment.data_object_id, position))
                if (stop - start) % step and stop - start > step:
                    yield (*nothing, segment.layout.rowid(segment.data_object_id, stop - 1))

    def everything(self, *, with_rowid: bool) -> Iterator[Row]:
        """Yield all rows of the table, also those cut off, in physical order."""
        full = TableScan(self.table, self.views, list(range(len(self.views))))
        return full.rows(with_rowid=with_rowid)

    def beginnings(self, lengths: list[int]) -> Iterator[Row]:
        """Yield that many rows from the start of each segment, without addresses."""
        first = TableScan(self.table, self.views, list(range(len(self.views))))
        first._ranges = {number: [(0, length)] for number, length in enumerate(lengths)}
        return first.rows(with_rowid=False)

    def rows(self, *, with_rowid: bool) -> Iterator[Row]:
        """Yield the rows, their address after the columns' values if requested."""
        for number in self.chosen:
            view = self.views[number]
            segment = view.segment
            numbered: Iterable[tuple[int, Row]] = view.rows(self._ranges[number])
            if self.table.organization == "index":
                key = self.table.key_order()
                numbered = sorted(numbered, key=lambda found: key(found[1]))
            if self._sampled is not None:
                percent, owner = self._sampled, segment.object_id
                numbered = (f for f in numbered if _drawn((owner, f[0]), percent))
            if with_rowid:
                address = self.table.rowid
                yield from (
                    (*values, address(segment, position, values)) for position, values in numbered
                )
            else:
                yield from map(itemgetter(1), numbered)


def _within(ranges: Iterable[Slice], count: int) -> list[Slice]:
    return [(start, min(stop, count)) for start, stop in ranges if start < count]


def _drawn(what: tuple[int, int], percent: float) -> bool:
    number = zlib.crc32(b"%d,%d" % what)
    return (number * 2654435761 >> 7) % 1_000_000 < percent * 10_000


def bounds(conditions: list[tuple[str, Any]]) -> tuple[Bound | None, Bound | None]:
    """Return the range (from, to below) of addresses that comparisons with ROWID leave."""
    low: Bound | None = None
    high: Bound | None = None
    for operator, address in conditions:
        here: Bound = tuple(address if isinstance(address, Rowid) else Rowid.parse(str(address)))  # type: ignore[assignment]
        behind: Bound = (*here[:3], here[3] + 1)
        start = {">=": here, ">": behind, "=": here}.get(operator)
        stop = {"<": here, "<=": behind, "=": behind}.get(operator)
        if start is not None:
            low = start if low is None else max(low, start)
        if stop is not None:
            high = stop if high is None else min(high, stop)
    return low, high


_UNORDERED = {"CLOB", "NCLOB", "BLOB", "LONG", "LONG RAW", "JSON", "XMLTYPE", "VECTOR"}


def aggregated(rows: list[Row], calls: list[Call], inner: list[Compiled | None]) -> Row:
    found: list[Any] = []
    for call, one in zip(calls, inner, strict=True):
        if one is None:
            found.append(len(rows))
            continue
        values = [value for row in rows if (value := one.value(row)) is not None]
        found.append(len(values) if call.name == "COUNT" else sum(values) if values else None)
    return tuple(found)


def projection(values: list[Compiled], width: int) -> Callable[[Iterable[Row]], Iterable[Row]]:
    """Return what makes result rows of a scan's rows."""
    functions = [one.value for one in values]
    places = [one.column for one in values]
    if places == list(range(width)):
        return lambda rows: rows
    if len(places) > 1 and None not in places:
        return lambda rows: map(itemgetter(*places), rows)

    def project(rows: Iterable[Row]) -> Iterator[Row]:
        try:
            for row in rows:
                yield tuple([function(row) for function in functions])
        except (ValueError, TypeError, ArithmeticError) as error:
            raise OracleError(1722, f"invalid number ({error})") from error

    return project


def kept(rows: Iterable[Row], condition: Compiled) -> Iterator[Row]:
    test = condition.value
    if condition.constant:
        # `WHERE 1 = 0` reads nothing of a large table.
        return iter(rows) if condition.now() else iter(())
    return (row for row in rows if test(row))


def first_rows(rows: Iterable[Row], limit: int) -> Iterator[Row]:
    """Yield no more than that many rows, and ask for no more."""
    left = limit
    for row in rows if limit else ():
        yield row
        left -= 1
        if not left:
            return


def in_order(
    rows: Iterable[Row], order: list[tuple[Compiled, bool]], environment: Environment
) -> list[Row]:
    """Return rows in order; NULL is the greatest, text goes by its code points."""
    sides = []
    for one, descending in order:
        if one.type.name in _UNORDERED:
            raise OracleError(932, f"inconsistent datatypes: expected - got {one.type.name}")
        sides.append((comparable(one, one, environment)[0], descending))

    def compare(a: Row, b: Row) -> int:
        for side, descending in sides:
            x, y = side(a), side(b)
            if x == y:
                continue
            less = False if x is None else True if y is None else x < y
            return -1 if less != descending else 1
        return 0

    return sorted(rows, key=cmp_to_key(compare))


ROWID_PARTS = {f"DBMS_ROWID.ROWID_{part}" for part in ("OBJECT", "RELATIVE_FNO", "BLOCK_NUMBER")}
_AGGREGATES = {"COUNT", "SUM"}


@dataclass(slots=True, kw_only=True)
class Projected:
    """Rows of a table that could be served from an encoded form of it."""

    scan: TableScan
    key: tuple[Any, ...]
    """Dependencies of the values beside the rows."""
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
        """Return the visible rows of every segment of a table."""

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
            OracleError: ORA-00942, ORA-01031 and the errors of the SCN.
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
        """Return the conditions on single rows; those on addresses narrow the scan immediately."""
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
        columns = tuple(Column(name=item.name, type=expression_number()) for item in query.items)
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
            return replace(query, conditions=others, limit=max(number, 0))
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
