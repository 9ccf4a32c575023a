"""Seeing whether a server agrees: rows of a table both ways, compared cell by cell."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from unloader.errors import SourceError
from unloader.sources.oracle.native.batches import (
    NativeStatement,
    NotForNative,
    tap_on,
)
from unloader.sources.oracle.native.columns import may_be_native, sorts_of
from unloader.sources.oracle.native.confirmations import confirm
from unloader.sources.oracle.native.decoder import Refused
from unloader.sources.oracle.native.library import library
from unloader.sources.oracle.reading.route import peers_of

if TYPE_CHECKING:
    from unloader.model import SourceSpec
    from unloader.sources.oracle.connection.session import Session
    from unloader.sources.oracle.native.tap import Tap
    from unloader.sources.oracle.reading.fetch import FetchPlan

logger = logging.getLogger(__name__)

CONFIRMED_ROWS = 20_000
"""Rows of a table that are compared, at most."""

_SIZES = (1, 2, 3, 50, 1000)
"""Rows of one response after the other: values repeat across each of their boundaries."""


class Agreement(Struct, frozen=True, kw_only=True):
    """What a comparison showed."""

    rows: int
    """Compared; every cell was the same."""
    sorts: frozenset[str]
    """Of the columns, as far as one of the values was not NULL."""


def confirm_fetch(
    spec: SourceSpec, session: Session, statements: Sequence[str], plan: FetchPlan
) -> None:
    """Compare rows of a table, and remember that the server of a session agrees.

    Args:
        spec: The source.
        session: The parent's.
        statements: Those of the run's units.
        plan: What is fetched.

    Raises:
        ConfigError: It cannot be remembered, or not be tried on this machine.
        SourceError: The two ways differ, or the table is not for the native fetch.
    """
    library()
    tap = tap_on(session.connection)
    if not may_be_native(plan):
        tap = "it leaves LOBs, LONGs and some other columns to the driver"
    if isinstance(tap, str):
        raise SourceError(
            f"the native fetch does not work for this run: {tap}", "leave --confirm-fetch out"
        )
    found = compare(session, tap, statements, plan)
    if not found.sorts:
        raise SourceError(
            "the native fetch cannot be confirmed: no row has a value",
            "leave --confirm-fetch out, or confirm with another table",
        )
    path = confirm(peers_of(spec, session), found.sorts, found.rows)
    logger.info("%d rows agree; remembered in %s", found.rows, path)


def compare(session: Session, tap: Tap, statements: Sequence[str], plan: FetchPlan) -> Agreement:
    """Fetch rows of a table both ways and compare them.

    Args:
        session: Nothing else happens on it meanwhile; lost if the two ways differ.
        tap: On its connection.
        statements: Those of a run's units, read one after the other until there are enough rows.
        plan: What is fetched.

    Raises:
        SourceError: The two ways differ, or a statement is not for the native fetch.
    """
    sorts = sorts_of(plan)
    rows, seen = 0, set[str]()
    for sql in statements:
        if rows >= CONFIRMED_ROWS:
            break
        with session.translating():
            try:
                with NativeStatement(tap, plan) as statement:
                    statement.execute(sql)
                    more, turn = True, 0
                    while more and rows < CONFIRMED_ROWS:
                        size = _SIZES[min(turn, len(_SIZES) - 1)]
                        arrays, more = statement.compared(size)
                        turn += 1
                        rows += len(arrays[0])
                        seen.update(
                            sort
                            for sort, array in zip(sorts, arrays, strict=True)
                            if array.null_count < len(array)
                        )
            except NotForNative as error:
                raise SourceError(
                    f"the native fetch does not work for this table: {error}",
                    "leave --confirm-fetch out",
                ) from error
            except Refused as refusal:
                where = f" (column {refusal.column + 1})" if refusal.column >= 0 else ""
                raise SourceError(
                    f"the native fetch and the driver give different values{where}: "
                    f"{refusal.reason}",
                    "continue without --confirm-fetch; the driver's fetch is exact",
                ) from refusal
            except ValueError as error:
                raise SourceError(
                    f"the driver cannot read a date of this table: {error}",
                    "confirm with another table",
                ) from error
    return Agreement(rows=rows, sorts=frozenset(seen))
