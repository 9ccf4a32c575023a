"""SQL that the sources share: identifiers, select lists, conditions and samples of keys.

Only the key decides whether it is in a sample, not its table, its source or the other rows. So rows
that refer to each other by the key are sampled together, and each run samples the same rows.
docs/subsets.md explains this to users.

The text of a number is its decimal digits without redundant zeros. The text of a CHAR has no
padding. A UUID and the hexadecimal digits of bytes are in lower case. A row whose key is NULL or
empty is in no sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from partition_planner.model import ColumnInfo, TableInfo
from unloader.errors import SnapshotGone, SourceError, UsageError
from unloader.model import Extract, ReadColumn, SampledKeys

if TYPE_CHECKING:
    from partition_planner.model import Plan
    from unloader.sources.base import Catalog


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


def relation_of(extract: Extract) -> str:
    if extract.query is not None:
        return derived_table(extract.query)
    return qualified(extract.table.schema, extract.table.name)


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
    text = f"SELECT {columns} FROM {relation}"
    return f"{text} WHERE {' AND '.join(conditions)}" if conditions else text


def limit_clause(limit_rows: int | None) -> str:
    """Return the clause that limits a SELECT to `limit_rows` rows, with a blank before it."""
    return "" if limit_rows is None else f" LIMIT {limit_rows}"


def select_count(
    relation: str, conditions: Sequence[str], limit_rows: int | None, count: str = "count(*)"
) -> str:
    """Return a SELECT of the number of rows, which counts no further than to a limit."""
    if limit_rows is None:
        return select(count, relation, conditions)
    rows = select("1", relation, conditions) + limit_clause(limit_rows)
    return f"SELECT {count} FROM ({rows}) AS counted"


def query_table(columns: Sequence[ColumnInfo]) -> TableInfo:
    return TableInfo(
        schema=None, name="query", columns=tuple(columns), named_partitions=False, row_ranges=False
    )


def describe_query(catalog: Catalog, query: str) -> TableInfo:
    """Return the columns of a query; an error that the database finds in it names the option.

    Raises:
        UsageError: The source knows no queries.
        SourceError: The query is not valid, or columns share a name.
    """
    try:
        return catalog.describe_query(query)
    except SourceError as error:
        raise not_accepted(
            "--query", error, "give --query one SELECT, in the SQL of the database"
        ) from error


def check_distinct(names: Sequence[str]) -> None:
    """Raise `SourceError` if two columns of a query share a name."""
    for name in names:
        if names.count(name) > 1:
            raise SourceError(
                f"two columns of the query are named {name!r}",
                "give each column a different name with AS",
            )


def check_condition(explain: Callable[[str], object], relation: str, where: str) -> None:
    """Let the database parse the user's condition, bare and in its parentheses.

    The bare check is needed: `a) OR (b` would close the parentheses and read rows of other units.

    Args:
        explain: Has one statement parsed and planned without running it.

    Raises:
        SourceError: It is not a condition; the message has the database's own words.
    """
    for wanted in (f"{where}\n", condition(where)):
        try:
            explain(select("1", relation, [wanted]))
        except SourceError as error:
            hint = "give --where one condition over the table's columns"
            raise not_accepted(f"--where {where}", error, hint) from error


def not_accepted(given: str, error: SourceError, hint: str) -> SourceError:
    """Return the database's error on SQL of the user as one of the option.

    A lost connection or snapshot has nothing to do with the SQL and is returned unchanged.

    Args:
        given: The option, with its text if that is short.
        hint: The next step for the user, if the database's error has no better one.
    """
    if error.retryable or isinstance(error, SnapshotGone):
        return error
    usual = error.hint == error.usual_hint
    return type(error)(
        f"the database does not accept {given}: {error.message}", hint if usual else error.hint
    )


_DIGITS = 8
"""Hexadecimal digits of the hash that count: a share is exact to 1 in 4 billion."""


def below(share: float) -> str:
    """Return the upper bound of a sampled key's SHA-256, as its first hexadecimal digits."""
    buckets: int = 16**_DIGITS
    return f"{max(1, int(share * buckets)):0{_DIGITS}x}"


def is_sampled(text: bytes | None, share: float) -> bool:
    """Return whether a key is in a sample.

    Args:
        text: The key's text in UTF-8.
    """
    return bool(text) and hashlib.sha256(text or b"").hexdigest() < below(share)


def count(catalog: Catalog, extract: Extract, plan: Plan) -> int:
    """Return how many rows a run reads, counted by the database.

    Only for a sample or a part do the units of the plan determine the rows. Otherwise the rows of
    the extract are counted, without the plan.
    """
    if plan.has_all_units:
        return catalog.count(extract)
    return catalog.count_selected(extract, plan.selectors)


def check_able(catalog: Catalog, option: str) -> None:
    """Make sure that a source can read a part of the rows.

    Raises:
        UsageError: It cannot.
    """
    if not catalog.capabilities.samples:
        raise UsageError(
            f"--{option} does not apply to this source, which cannot choose rows", "leave it out"
        )


def sampled_keys(catalog: Catalog, label: str, column: ColumnInfo, share: float) -> SampledKeys:
    """Return the sample of a column's values.

    Args:
        share: Above 0 and below 1.

    Raises:
        UsageError: Values of the column's type cannot be keys.
    """
    found = catalog.sampled_keys(column, share)
    if found is None:
        raise UsageError(
            f"--sample-by {column.name}: the column of {label} has the type "
            f"{column.native_type or 'of any value'}, whose values cannot be keys",
            "give a column of whole or decimal numbers, text, UUIDs or bytes",
        )
    return found
