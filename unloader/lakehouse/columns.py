"""Columns of tables that find those of the files by their names, and how they are compared."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from unloader.lakehouse.refusals import other_columns


class Column(Struct, frozen=True, kw_only=True):
    """A column of a table."""

    name: str
    kind: str
    """Its type, as the format writes it."""
    nullable: bool
    rules: tuple[str, ...] = ()
    """What else the table asks of its values."""


def check_alike(wanted: Iterable[Column], table: Iterable[Column], name: str) -> None:
    """Check that a table can take files; the order of the columns may differ.

    Args:
        wanted: The columns of a table that was made for the files.
        table: Its own.
        name: Of the table, for messages.

    Raises:
        OutputFailed: It has other columns, or one of another type, with rules of its own, or that
            may not be null.
    """
    needed = {each.name: each for each in wanted}
    has = {each.name: each for each in table}
    wrong = [
        *(f"it has no column {each!r}" for each in needed if each not in has),
        *(f"its column {each!r} is not in the files" for each in has if each not in needed),
    ]
    for each in needed.values():
        own = has.get(each.name)
        if own is None:
            continue
        if own.kind != each.kind:
            wrong.append(f"its column {each.name!r} is {own.kind} instead of {each.kind}")
        elif each.nullable and not own.nullable:
            wrong.append(f"its column {each.name!r} may not be null, but the source's column may")
        elif own.rules:
            wrong.append(f"its column {each.name!r} has additional rules ({', '.join(own.rules)})")
    if wrong:
        raise other_columns(name, wrong)
