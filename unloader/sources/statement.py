"""Pieces of SQL that every source here writes alike: identifiers, select lists, conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unloader.errors import SnapshotGone, SourceError
from unloader.model import Extract, ReadColumn


def quoted(name: str) -> str:
    """Return an identifier in double quotes, as the SQL standard escapes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a character literal, as the SQL standard escapes it."""
    return "'" + text.replace("'", "''") + "'"


def qualified(schema: str | None, name: str) -> str:
    """Return `"schema"."name"`, or the name alone."""
    return f"{quoted(schema)}.{quoted(name)}" if schema else quoted(name)


def derived_table(query: str) -> str:
    """Return a query as a table expression; the newline ends a trailing `--` comment."""
    return f"({query.strip().rstrip(';')}\n) AS query"


def condition(where: str) -> str:
    """Return the user's condition in parentheses; the newline ends a trailing `--` comment."""
    return f"({where}\n)"


def row_conditions(extract: Extract) -> list[str]:
    """Return what holds for all rows asked for, apart from partitions: `--where`, the sample."""
    found = [condition(extract.where)] if extract.where else []
    if extract.keys is not None and extract.keys.condition:
        found.append(extract.keys.condition)
    return found


def select_list(columns: Sequence[ReadColumn]) -> str:
    """Return `expression AS "name"` for each column; a plain column stands alone."""
    return ", ".join(
        column.expression
        if column.expression == quoted(column.name)
        else f"{column.expression} AS {quoted(column.name)}"
        for column in columns
    )


def select(columns: str, relation: str, conditions: Sequence[str]) -> str:
    """Return a SELECT of these columns where all conditions hold."""
    text = f"SELECT {columns} FROM {relation}"
    return f"{text} WHERE {' AND '.join(conditions)}" if conditions else text


def limit_clause(limit_rows: int | None) -> str:
    """Return the clause behind a SELECT that gives so many rows at most, with a blank before it."""
    return "" if limit_rows is None else f" LIMIT {limit_rows}"


def select_count(
    relation: str, conditions: Sequence[str], limit_rows: int | None, count: str = "count(*)"
) -> str:
    """Return a SELECT of the number of rows, which counts no further than to a limit."""
    if limit_rows is None:
        return select(count, relation, conditions)
    rows = select("1", relation, conditions) + limit_clause(limit_rows)
    return f"SELECT {count} FROM ({rows}) AS counted"


def check_distinct(names: Sequence[str]) -> None:
    """Make sure that each column of a query has a name of its own.

    Raises:
        SourceError: Two share one.
    """
    for name in names:
        if names.count(name) > 1:
            raise SourceError(
                f"two columns of the query are named {name!r}",
                "give each column a different name with AS",
            )


def check_condition(explain: Callable[[str], object], relation: str, where: str) -> None:
    """Let the database parse the user's condition, bare and in its parentheses.

    Bare as well, for `a) OR (b` would take the parentheses apart and read rows of other units.

    Args:
        explain: Has one statement parsed and planned without running it.
        relation: What the condition filters.
        where: The condition.

    Raises:
        SourceError: It is no condition; the message has the database's own words.
    """
    for wanted in (f"{where}\n", condition(where)):
        try:
            explain(select("1", relation, [wanted]))
        except SourceError as error:
            hint = "give --where one condition over the table's columns"
            raise not_accepted(f"--where {where}", error, hint) from error


def not_accepted(given: str, error: SourceError, hint: str) -> SourceError:
    """Return the database's error on SQL of the user as one of the option.

    A lost connection or snapshot says nothing of the SQL, and is returned as it is.

    Args:
        given: The option, with its text where that is short.
        error: What the database said.
        hint: What to do next where the database's error knows nothing better.
    """
    if error.retryable or isinstance(error, SnapshotGone):
        return error
    usual = error.hint == error.usual_hint
    return type(error)(
        f"the database does not accept {given}: {error.message}", hint if usual else error.hint
    )
