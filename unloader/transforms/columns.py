"""Names of columns as steps have them, against the columns that there are."""

from __future__ import annotations

from collections.abc import Sequence

from unloader.errors import UsageError

_SHOWN = 12


def found(names: Sequence[str], name: str, what: str) -> int:
    """Return the place of the one column that a name means.

    That is the column of exactly this name, else the only one that differs from it in case alone.

    Args:
        names: Of the columns, in order; two may be the same.
        name: As it was typed.
        what: Who names it, in errors.

    Raises:
        UsageError: There is none, or it may be several.
    """
    index = known(names, name, what)
    if index is None:
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        raise UsageError(
            f"{what} names {name!r}, but this column does not exist", f"the columns are {shown}"
        )
    return index


def known(names: Sequence[str], name: str, what: str) -> int | None:
    """Return the place of the one column that a name means, None where there is none.

    Raises:
        UsageError: It may be several.
    """
    exact = [index for index, each in enumerate(names) if each == name]
    folded = name.casefold()
    same = exact or [index for index, each in enumerate(names) if each.casefold() == folded]
    if len(same) > 1:
        several = ", ".join(repr(names[index]) for index in same)
        raise UsageError(
            f"{what} names {name!r}, which may mean {several}",
            "write the name exactly as the column has it; if two columns have the same name, "
            "rename one in the query",
        )
    return same[0] if same else None
