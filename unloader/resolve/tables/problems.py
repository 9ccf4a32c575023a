"""Tables that cannot be unloaded, as far as is known before anything is read: told all at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from unloader.errors import PlanFailed, SourceError, UnloaderError, UsageError
from unloader.nouns import counted
from unloader.selection.problems import SHOWN
from unloader.selection.problems import TableProblem as SelectionProblem

_EARLIER = "it was left out when the run was first started: "
_TRY_AGAIN = (
    "start the command of the run with --resume-or-start: it reads all tables at a new snapshot, "
    "with the tables that were left out"
)


class TableProblem(Struct, frozen=True, kw_only=True):
    """One reason why a table, or what a pattern stands for, cannot be unloaded."""

    table: str
    error: UnloaderError
    mend: tuple[str, ...] = ()
    """SQL that mends it, a statement each, without semicolons."""
    entry: int | None = None
    """Number of the entry that asks for it, from 0; None where that is not known."""
    unmatched: bool = False
    """`table` is not a table, but a pattern, an exclusion or a column that matches nothing."""

    @property
    def sentence(self) -> str:
        """Table and reason."""
        message = self.error.message.rstrip(". ")
        return message if message.startswith(self.table) else f"{self.table}: {message}"

    @classmethod
    def earlier(cls, table: str, why: str, kind: type[UnloaderError] = SourceError) -> TableProblem:
        """Return the problem of a table that was left out before the run was resumed."""
        message = f"{_EARLIER}{why.removeprefix(_EARLIER)}"
        return cls(table=table, error=kind(message, _TRY_AGAIN))

    @classmethod
    def of(cls, problem: SelectionProblem, entry: int | None = None) -> TableProblem:
        """Return what the choice of tables has found."""
        mend = f"let a user who may grant it run: {'; '.join(problem.mend)}" if problem.mend else ""
        error = SourceError(problem.what, "; ".join(filter(None, (problem.hint, mend))))
        return cls(
            table=problem.table,
            error=error,
            mend=problem.mend,
            entry=entry,
            unmatched=problem.kind == "unmatched",
        )


def each_once(problems: Iterable[TableProblem]) -> tuple[TableProblem, ...]:
    """Return problems in their order, without what is told of a table already."""
    found: dict[tuple[str, str], TableProblem] = {}
    for each in problems:
        found.setdefault((each.table, each.error.message), each)
    return tuple(found.values())


def told_at_once(
    problems: Sequence[TableProblem], of: int, *, goes_on: bool = True
) -> UnloaderError:
    """Return one error for all tables that cannot be unloaded.

    Args:
        problems: At least one.
        of: The requested tables and queries, including these.
        goes_on: Who reads it can ask for the others alone.
    """
    tables = len({each.table for each in problems})
    unmatched = any(each.unmatched for each in problems)
    if len(problems) == 1 and (of == 1 or unmatched) and not problems[0].mend:
        (problem,) = problems
        if problem.table in problem.error.message:
            return problem.error
        return type(problem.error)(problem.sentence, problem.error.hint)
    kinds = {type(each.error) for each in problems}
    kind = kinds.pop() if len(kinds) == 1 else PlanFailed
    named = [each.sentence for each in problems[:SHOWN]]
    if len(problems) > SHOWN:
        named.append(f"and {len(problems) - SHOWN} more")
    # A pattern that matches nothing is not a table, so the problems are counted.
    head = (
        f"{counted(len(problems), 'problem')} found"
        if unmatched
        else f"{tables} of {counted(of, 'table')} cannot be unloaded"
    )
    error = kind(
        f"{head}: {'; '.join(named)}",
        "; ".join(_hints(problems, goes_on=goes_on and tables < of and not unmatched)),
    )
    error.script = script(problems)
    return error


def lost_at_once(problems: Sequence[TableProblem], of: int) -> UnloaderError:
    """Return one error for all tables that a run cannot go on with.

    Args:
        problems: At least one.
        of: Tables of the run.
    """
    kinds = {type(each.error) for each in problems}
    kind = kinds.pop() if len(kinds) == 1 else PlanFailed
    named = [each.sentence for each in problems[:SHOWN]]
    if len(problems) > SHOWN:
        named.append(f"and {len(problems) - SHOWN} more")
    hints = dict.fromkeys(_hints(problems, goes_on=False))
    error = kind(
        f"{len(problems)} of {counted(of, 'table')} cannot be read as before: {'; '.join(named)}",
        "; ".join(hints),
    )
    error.script = script(problems)
    return error


def script(problems: Iterable[TableProblem]) -> str:
    """Return the SQL that mends what SQL can mend, each statement once; empty where there is none.

    It holds no text but the statements, so that no name can end a comment.
    """
    return "".join(f"{statement};\n" for statement in _statements(problems))


def _statements(problems: Iterable[TableProblem]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sql for each in problems for sql in each.mend))


def _hints(problems: Sequence[TableProblem], *, goes_on: bool) -> list[str]:
    """Return what to do next: each hint once, with its tables if hints differ; then statements."""
    hinted = [each for each in problems[:SHOWN] if not each.mend and each.error.hint]
    tables: dict[str, list[str]] = {}
    for each in hinted:
        tables.setdefault(each.error.hint, []).append(each.table)
    found = [
        hint if len(tables) == 1 else f"{', '.join(names)}: {hint}"
        for hint, names in list(tables.items())[:3]
    ]
    statements = _statements(problems)
    if statements:
        found.append(f"let a user who may grant it run: {'; '.join(statements[:SHOWN])}")
    if len(statements) > SHOWN:
        found.append(f"and {len(statements) - SHOWN} more statements, which --json shows")
    usage = any(isinstance(each.error, UsageError) for each in problems)
    if goes_on and usage and "[[table]]" not in "".join(found):
        found.append("write an option for one table below its [[table]] in a job file")
    if goes_on:
        found.append("or continue without these tables: --on-table-failure continue")
    return found
