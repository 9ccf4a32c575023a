"""Open cursors: a statement that was parsed, where it is in its rows, what goes wrong on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oracle_server.faults import Fault, Faults
from oracle_server.model import Column
from oracle_server.wire.binds import BindType
from oracle_server.wire.packets import Piece
from oracle_server.wire.rows.describe import needs_define
from oracle_server.wire.rows.lobs import Locators
from oracle_server.wire.rows.row_sets import RowCursor


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What is sent, and what happens with it."""

    pieces: Iterable[Piece]
    fault: Fault | None = None
    """A `cut`, `reset` or `trickle`; a stall is among the pieces."""


@dataclass(slots=True, kw_only=True)
class Cursor:
    """One open cursor of a session."""

    number: int
    statement: str
    columns: tuple[Column, ...] | None = None
    """None: it is no query."""
    rows: RowCursor | None = None
    """None: it was not executed, or failed."""
    kind: str = ""
    """Of its last Answer."""
    changed: int = 0
    """Rows that its last execution changed."""
    defines: tuple[int, ...] | None = None
    prefetches: tuple[int, ...] = ()
    bind_types: tuple[BindType, ...] = ()
    faults: tuple[Fault, ...] = ()
    """Those that may happen to this execution."""
    slow: Fault | None = None
    """A trickle that has begun."""

    @property
    def is_ready(self) -> bool:
        """Rows may come: with LOB columns a client has to define them first."""
        return self.defines is not None or not needs_define(self.columns or ())

    def next_rows(self, asked: int, locators: Locators, faults: Faults) -> Reply:
        """Return the next rows, and the fault to send them with.

        Raises:
            OracleError: A fault is due; this reply's rows are lost, as they are on real servers.
        """
        rows = self.rows
        assert rows is not None
        before = rows.rows_so_far
        limits = [fault.torn_at(before) for fault in self.faults]
        # Should another execution claim the fault first, the reply is short, which is no harm.
        limit = min([asked, *(each for each in limits if each is not None)])
        data = rows.take(
            limit, locators, defines=self.defines, prefetches=self.prefetches, asked=asked
        )
        for fault in self.faults:
            if not fault.is_due(before, rows.rows_so_far, rows.done) or not faults.claim(fault):
                continue
            if fault.error is not None:
                rows.rows_so_far = before
                raise fault.error
            if fault.kind == "stall":
                return Reply(pieces=_with_pause(data, fault), fault=self.slow)
            if fault.kind == "trickle":
                self.slow = fault
                break
            return Reply(pieces=[memoryview(data)[:-1]], fault=fault)
        return Reply(pieces=[data], fault=self.slow)

    def without_rows(self, faults: Faults) -> Reply:
        """Return the start of a reply to a statement that is no query.

        Raises:
            OracleError: A fault is due that is an error.
        """
        for fault in self.faults:
            if fault.after_rows or not faults.claim(fault):
                continue
            if fault.error is not None:
                raise fault.error
            pause = [fault.pause] if fault.kind == "stall" else []
            return Reply(pieces=pause, fault=None if pause else fault)
        return Reply(pieces=[])


def _with_pause(data: bytes, fault: Fault) -> list[Piece]:
    """Return a reply that stops half way, or before its first byte if it is the first one."""
    pause = fault.pause
    if fault.after_rows == 0:
        return [pause, data]
    view = memoryview(data)
    middle = len(data) // 2
    return [view[:middle], pause, view[middle:]]
