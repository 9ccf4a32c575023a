"""What keeps tables from being unloaded: collected over all of them, told at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Literal

from msgspec import Struct

from unloader.errors import SourceError
from unloader.selection.listing import ListedTable, Obstacle, ObstacleKind

ProblemKind = ObstacleKind | Literal["unmatched", "column", "twice"]
"""unmatched: a name or a pattern that stands for no table. column: one that cannot be unloaded,
though the table can. twice: patterns of two entries match the table. The others are those of an
`Obstacle`."""

SHOWN = 12
"""Problems in the text of an error; the others are counted."""


class TableProblem(Struct, frozen=True, kw_only=True):
    """One reason why one table, or what one pattern stands for, cannot be unloaded."""

    kind: ProblemKind
    table: str
    """Schema and name of the table, or the name or pattern as it was typed."""
    what: str
    """In the words of a sentence."""
    mend: tuple[str, ...] = ()
    """SQL that mends it, a statement each, without semicolons."""
    hint: str = ""
    """What to do next where no SQL mends it."""

    @property
    def sentence(self) -> str:
        """Table and reason."""
        return f"{self.table}: {self.what}"


def problem_of(table: str, obstacle: Obstacle) -> TableProblem:
    """Return an obstacle of a table as a problem."""
    return TableProblem(
        kind=obstacle.kind,
        table=table,
        what=obstacle.what,
        mend=obstacle.mend,
        hint=obstacle.hint,
    )


def obstacles_of(tables: Iterable[ListedTable]) -> tuple[TableProblem, ...]:
    """Return what the listing already says of these tables, in their order."""
    return tuple(
        problem_of(table.label, obstacle) for table in tables for obstacle in table.obstacles
    )


def unreadable_columns(
    table: ListedTable, chosen: Collection[str] | None = None
) -> tuple[TableProblem, ...]:
    """Return a problem for each column that cannot be unloaded although the table can.

    Args:
        table: Its name is as the source lists it.
        chosen: Names of the columns that are to be unloaded; None is all of them.
    """
    return tuple(
        TableProblem(
            kind="column",
            table=table.label,
            what=f"column {column.name} {column.what}",
            mend=column.mend,
            hint=f"leave it out with --exclude {column.name}",
        )
        for column in table.unreadable
        if chosen is None or column.name in chosen
    )


class TableProblems(Struct, frozen=True, kw_only=True):
    """All that is wrong with the tables asked for."""

    items: tuple[TableProblem, ...]

    @classmethod
    def of(cls, *several: Iterable[TableProblem]) -> TableProblems:
        """Return the problems of all steps, each once, in their order."""
        return cls(items=tuple(dict.fromkeys(each for some in several for each in some)))

    @property
    def statements(self) -> tuple[str, ...]:
        """The SQL that would mend what SQL can, each statement once, in the order of problems."""
        return tuple(dict.fromkeys(sql for problem in self.items for sql in problem.mend))

    def script(self) -> str:
        """Return those statements as one script; empty where there is none.

        It holds no text but the statements, so that no name can end a comment.
        """
        return "".join(f"{statement};\n" for statement in self.statements)

    def error(self) -> SourceError | None:
        """Return one error for all of it, None where there is nothing wrong."""
        if not self.items:
            return None
        shown = "; ".join(problem.sentence for problem in self.items[:SHOWN])
        left = len(self.items) - SHOWN
        more = f"; and {left} more" if left > 0 else ""
        return SourceError(f"{self._head()}: {shown}{more}", " ".join(self._hints()))

    def _head(self) -> str:
        tables = len({problem.table for problem in self.items})
        if tables == 1:
            return "a requested table cannot be unloaded"
        return f"{tables} of the requested tables cannot be unloaded"

    def _hints(self) -> Iterator[str]:
        """Yield what to do next: each hint once, then the statements."""
        hints = dict.fromkeys(problem.hint for problem in self.items[:SHOWN] if problem.hint)
        statements = self.statements
        if hints:
            yield "; ".join(hints) + (";" if statements else "")
        if statements:
            shown = "; ".join(statements[:SHOWN])
            left = len(statements) - SHOWN
            more = f"; and {left} more statements" if left > 0 else ""
            yield f"let a user who may grant it run: {shown}{more}"
