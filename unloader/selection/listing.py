"""What a source lists: its tables, and what keeps some of them from being unloaded.

Made by a source in a fixed number of statements, however many tables there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal, get_args

from msgspec import Struct

from unloader.errors import PlanFailed, SourceError, UnloaderError, UsageError
from unloader.model import TableSummary
from unloader.nouns import counted
from unloader.request.names import Folding

Family = Literal["table", "materialized view", "view", "external table", "temporary table"]
"""The families that a pattern distinguishes. table: it stores rows, partitioned or not, in any
order. external table: its rows are stored elsewhere, foreign and virtual tables among them.
temporary table: only the session that wrote its rows sees them."""

FAMILIES: tuple[Family, ...] = get_args(Family)

STORED: tuple[Family, ...] = ("table", "materialized view")
"""The families whose rows the database itself stores; a pattern means these where none are asked
for."""

ObstacleKind = Literal["no right", "rows hidden", "not populated", "gone", "refused"]
"""no right: the table must not be read. rows hidden: policies choose the rows. not populated: a
materialized view that was never filled. gone: it changed after the snapshot. refused: the database
does not describe it."""


class Obstacle(Struct, frozen=True, kw_only=True):
    """Why a table cannot be unloaded, and what would mend it."""

    kind: ObstacleKind
    what: str
    """In the words of a sentence whose subject is the table: `user x has no right to ...`."""
    mend: tuple[str, ...] = ()
    """SQL, a statement each, without semicolons; for a user who may run it."""
    hint: str = ""
    """What to do next where no statement mends it."""


class UnreadableColumn(Struct, frozen=True, kw_only=True):
    """A column that cannot be unloaded, for its type or for want of a right; the others can."""

    name: str
    what: str
    mend: tuple[str, ...] = ()


def of_unread_type(name: str, native_type: str) -> UnreadableColumn:
    what = f"has the type {native_type}, which cannot be read exactly"
    return UnreadableColumn(name=name, what=what)


_FAMILY_OF: dict[str, Family] = {
    "view": "view",
    "materialized view": "materialized view",
    "external table": "external table",
    "foreign table": "external table",
    "virtual table": "external table",
    "temporary table": "temporary table",
}


def family_of(kind: str) -> Family:
    """Return the family of a kind, by the words that sources use; others are tables."""
    return _FAMILY_OF.get(kind, "table")


class ListedTable(Struct, frozen=True, kw_only=True):
    schema: str | None
    name: str
    kind: str
    """As the source calls it: partitioned table, index-organized table, foreign table, ..."""
    family: Family
    system: bool = False
    """Of the database itself, or one that serves another table; no pattern matches it."""
    part_of: tuple[str, str] | None = None
    """(schema, name) of a table whose rows include the rows of this one: PostgreSQL's
    inheritance."""
    obstacles: tuple[Obstacle, ...] = ()
    unreadable: tuple[UnreadableColumn, ...] = ()

    @classmethod
    def of(cls, table: TableSummary, *, system: bool = False) -> ListedTable:
        """Return a table as it is listed by a source that knows no more of it."""
        return cls(
            schema=table.schema,
            name=table.name,
            kind=table.kind,
            family=family_of(table.kind),
            system=system,
        )

    @property
    def readable(self) -> bool:
        return not self.obstacles

    @property
    def key(self) -> tuple[str, str]:
        """Schema and name: what tells it from every other, and the order of listings."""
        return (self.schema or "", self.name)

    @property
    def label(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


class Listing(Struct, frozen=True, kw_only=True, dict=True):
    """All tables of a source, and how names are read there."""

    tables: tuple[ListedTable, ...]
    """By schema and name, in the order of code points, not in the database's order."""
    folding: Folding
    default_schemas: tuple[str, ...]
    """Where a name without a schema is looked for; the first that has it wins."""
    where: str

    @cached_property
    def by_schema(self) -> Mapping[str, Sequence[ListedTable]]:
        found: dict[str, list[ListedTable]] = {}
        for table in self.tables:
            found.setdefault(table.key[0], []).append(table)
        return found

    @cached_property
    def users(self) -> Mapping[str, Sequence[ListedTable]]:
        """The tables of each schema that are not the database's own."""
        found = {
            schema: [table for table in tables if not table.system]
            for schema, tables in self.by_schema.items()
        }
        return {schema: own for schema, own in found.items() if own}

    @classmethod
    def of(
        cls,
        tables: list[ListedTable],
        *,
        folding: Folding,
        default_schemas: tuple[str, ...],
        where: str,
    ) -> Listing:
        """Return the listing of tables that come in any order."""
        return cls(
            tables=tuple(sorted(tables, key=lambda table: table.key)),
            folding=folding,
            default_schemas=default_schemas,
            where=where,
        )


ProblemKind = ObstacleKind | Literal["unmatched", "column", "twice"]
"""unmatched: a name, a pattern or a column that matches nothing. column: a column that cannot be
unloaded, although the table can. twice: patterns of two entries match the table. The other kinds
come from an `Obstacle`."""

SHOWN = 12


_EARLIER = "it was left out when the run was first started: "
TRY_AGAIN = (
    "start the command of the run with --resume-or-start: it reads all tables at a new snapshot, "
    "with the tables that were left out"
)


class TableProblem(Struct, frozen=True, kw_only=True):
    """One reason why one table, or what one pattern matches, cannot be unloaded."""

    table: str
    """Schema and name of the table, or the name or pattern as it was typed."""
    error: UnloaderError
    kind: ProblemKind = "refused"
    mend: tuple[str, ...] = ()
    entry: int | None = None
    """Number of the entry that asks for the table, from 0; None where it is not known."""

    @classmethod
    def of(
        cls, kind: ProblemKind, table: str, what: str, *, hint: str = "", mend: tuple[str, ...] = ()
    ) -> TableProblem:
        """Return a problem that the listing or the choice of tables shows."""
        grants = f"let a user who may grant it run: {'; '.join(mend)}" if mend else ""
        error = SourceError(what, "; ".join(filter(None, (hint, grants))))
        return cls(table=table, error=error, kind=kind, mend=mend)

    @classmethod
    def earlier(cls, table: str, why: str, kind: type[UnloaderError] = SourceError) -> TableProblem:
        """Return the problem of a table that was left out before the run was resumed."""
        return cls(table=table, error=kind(_EARLIER + why.removeprefix(_EARLIER), TRY_AGAIN))

    @property
    def sentence(self) -> str:
        message = self.error.message.rstrip(". ")
        return message if message.startswith(self.table) else f"{self.table}: {message}"


def problem_of(table: str, obstacle: Obstacle) -> TableProblem:
    return TableProblem.of(
        obstacle.kind, table, obstacle.what, hint=obstacle.hint, mend=obstacle.mend
    )


def unreadable_columns(
    table: ListedTable, chosen: Collection[str] | None = None
) -> tuple[TableProblem, ...]:
    """Return a problem for each chosen column that cannot be unloaded; None chooses all columns."""
    return tuple(
        TableProblem.of(
            "column",
            table.label,
            f"column {column.name} {column.what}",
            hint=f"leave it out with --exclude {column.name}",
            mend=column.mend,
        )
        for column in table.unreadable
        if chosen is None or column.name in chosen
    )


def each_once(problems: Iterable[TableProblem]) -> tuple[TableProblem, ...]:
    """Return problems in their order; a reason that a table already has is left out."""
    found: dict[tuple[str, str], TableProblem] = {}
    for each in problems:
        found.setdefault((each.table, each.error.message), each)
    return tuple(found.values())


def one_error(problems: Sequence[TableProblem], of: int, *, goes_on: bool = True) -> UnloaderError:
    """Return one error for the tables, of `of` requested ones, that cannot be unloaded."""
    tables = len({each.table for each in problems})
    unmatched = any(each.kind == "unmatched" for each in problems)
    if len(problems) == 1 and (of == 1 or unmatched) and not problems[0].mend:
        (problem,) = problems
        if problem.table in problem.error.message:
            return problem.error
        return type(problem.error)(problem.sentence, problem.error.hint)
    # A pattern that matches nothing is not a table, so the problems are counted.
    head = (
        f"{counted(len(problems), 'problem')} found"
        if unmatched
        else f"{tables} of {counted(of, 'table')} cannot be unloaded"
    )
    return joined(problems, head, goes_on=goes_on and tables < of and not unmatched)


def lost_error(problems: Sequence[TableProblem], of: int) -> UnloaderError:
    """Return one error for all tables that a resumed run cannot read as before."""
    head = f"{len(problems)} of {counted(of, 'table')} cannot be read as before"
    return joined(problems, head, goes_on=False)


def joined(problems: Sequence[TableProblem], head: str, *, goes_on: bool) -> UnloaderError:
    """Return one error for problems, of their kind if they have one kind; each hint comes once."""
    kinds = {type(each.error) for each in problems}
    kind = kinds.pop() if len(kinds) == 1 else PlanFailed
    named = [each.sentence for each in problems[:SHOWN]]
    if len(problems) > SHOWN:
        named.append(f"and {len(problems) - SHOWN} more")
    # What to do next: each hint once, with its tables if hints differ; then statements.
    tables: dict[str, list[str]] = {}
    for each in problems[:SHOWN]:
        if each.error.hint and not each.mend:
            tables.setdefault(each.error.hint, []).append(each.table)
    shown = list(tables.items())[:3]
    hints = [hint if len(tables) == 1 else f"{', '.join(of)}: {hint}" for hint, of in shown]
    statements = list(dict.fromkeys(sql for each in problems for sql in each.mend))
    if statements:
        hints.append(f"let a user who may grant it run: {'; '.join(statements[:SHOWN])}")
    if len(statements) > SHOWN:
        hints.append(f"and {len(statements) - SHOWN} more statements, which --json shows")
    usage = any(isinstance(each.error, UsageError) for each in problems)
    in_job_file = any("[[table]]" in text for text in (*dict(shown), *statements[:SHOWN]))
    if goes_on and usage and not in_job_file:
        hints.append("write an option for one table below its [[table]] in a job file")
    if goes_on:
        hints.append("or continue without these tables: --on-table-failure continue")
    error = kind(f"{head}: {'; '.join(named)}", "; ".join(hints))
    error.script = script(problems)
    return error


def script(problems: Iterable[TableProblem]) -> str:
    """Return the SQL that solves what SQL can solve, each statement once; empty without any."""
    statements = dict.fromkeys(sql for each in problems for sql in each.mend)
    return "".join(f"{statement};\n" for statement in statements)
