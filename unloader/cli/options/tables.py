"""Options that choose tables: whether they ask for several, and which those are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unloader.errors import UsageError
from unloader.selection.choice import TableChoice
from unloader.selection.listing import STORED
from unloader.selection.patterns import parse_pattern, parse_schema, read_patterns

if TYPE_CHECKING:
    from unloader.selection.listing import Family

CHOOSING = ("schema", "exclude_table", "tables_from")
"""Options that choose tables beside `--table`."""

KINDS: Mapping[str, Family] = {
    "view": "view",
    "external": "external table",
    "temporary": "temporary table",
}
"""Words of `--table-kinds`."""

ONE_OF_SEVERAL = "one_of_several"
"""Stands among the options of an entry of a job file that has others beside it."""

_WILDCARDS = "*?["


def table_names(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names and patterns of `--table`; some commands take only one."""
    given = values.get("table") or ()
    return (given,) if isinstance(given, str) else tuple(given)


def is_of_several(values: Mapping[str, Any]) -> bool:
    """Return whether options ask for a run over several tables, be it one table that matches.

    Raises:
        UsageError: One of several names cannot be read: advice on the options of several would not
            help.
    """
    names = table_names(values)
    if values["query"] is not None or "exclude_table" not in values:
        return False
    if len(names) != 1 or any(values[key] for key in CHOOSING):
        for each in names:
            _is_pattern(each)
        return True
    return any(letter in names[0] for letter in _WILDCARDS) and _is_pattern(names[0])


def _is_pattern(text: str) -> bool:
    return parse_pattern(text).table is None


def choice_of(values: Mapping[str, Any]) -> TableChoice | None:
    """Return which tables options ask for; None where they have a query.

    Raises:
        UsageError: A pattern cannot be read, or the file of patterns.
    """
    if values["query"] is not None:
        return None

    listed = values["tables_from"]
    return TableChoice(
        tables=(
            *(parse_pattern(each, "--table") for each in table_names(values)),
            *(() if listed is None else read_patterns(Path(listed))),
        ),
        schemas=tuple(parse_schema(each, "--schema") for each in values["schema"]),
        exclude=tuple(parse_pattern(each, "--exclude-table") for each in values["exclude_table"]),
        families=(*STORED, *map(_family, values["table_kinds"])),
        allow_unmatched=values["allow_unmatched"],
    )


def _family(word: str) -> Family:
    known = KINDS.get(word.lower())
    if known is None:
        raise UsageError("--table-kinds names an unknown kind of table", f"use {', '.join(KINDS)}")
    return known
