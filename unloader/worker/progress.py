"""How far a unit is: counted as batches and pieces of text go by, reported now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from numa.processes import member
from unloader.events import UnitAdvanced
from unloader.model import Waits
from unloader.sources.base import Text, is_large_row

if TYPE_CHECKING:
    from writers.large_rows import LargeValue

Report = Callable[[UnitAdvanced], None]

REPORT_SECONDS = 0.2

_COUNTED_BYTES = 64 * 1024
"""Of the first text, to find out how long a row is (guess)."""


class Progress(Struct):
    """Counts what went through and reports it now and then."""

    unit: str
    report: Report
    rows: int = 0
    written: int = 0
    """Bytes, at the last look."""
    starved: Callable[[], float] = lambda: 0.0
    """Seconds that the work has waited for the source so far."""
    _starved_before: float = 0.0
    last: UnitAdvanced | None = None
    """The last report."""
    _reported: float = field(default_factory=time.monotonic)
    _repeated: float = 0.0
    _is_held_up: bool = False
    """Then everything else that is waited for waits for that, too."""

    def add(self, rows: int, written: int) -> None:
        self.rows += rows
        self.written = written
        before = self._reported
        if self._is_due():
            starved = self.starved()
            share = (starved - self._starved_before) / (self._reported - before)
            self._starved_before = starved
            self.waits("source" if share > 0.5 else "nothing")

    def held_up(self, waits: bool) -> None:
        """Report that the fetch waits for an order to continue, or continues."""
        self._is_held_up = waits
        self.waits("nothing")

    def waits(self, what: Waits) -> None:
        """Report the reason for a wait; it counts as progress, so only a change is reported."""
        what = "limit" if self._is_held_up else what
        self.last = UnitAdvanced(
            worker=member.number,
            unit=self.unit,
            rows=self.rows,
            bytes=self.written,
            waits_for=what,
        )
        self.report(self.last)

    def waits_for_room(self, place: str) -> None:
        """Repeat the last report while a disk has no room; may be called by another thread."""
        now = time.monotonic()
        if now - self._repeated >= REPORT_SECONDS:
            self._repeated = now
            nothing = UnitAdvanced(worker=member.number, unit=self.unit, rows=0, bytes=0)
            what = f"space on the disk of {place}"
            known = self.last or nothing
            self.report(replace(known, waiting_for=what, waits_for="destination"))

    def ends(self) -> None:
        """Report that the writers have all rows; they may need time to end."""
        if self._is_due():
            self.waits("destination")

    def _is_due(self) -> bool:
        now = time.monotonic()
        due = now - self._reported >= REPORT_SECONDS
        if due:
            self._reported = now
        return due


class RowEstimate(Struct):
    """About how many records a piece of text holds, for the display; results are counted.

    Ends of line are counted at the beginning only: counting them all costs as much CPU as handing
    the text on.
    """

    bytes_per_row: float = 0.0

    def __call__(self, piece: tuple[Text, ...]) -> int:
        usual = [chunk for chunk in piece if not is_large_row(chunk)]
        size = text_bytes(tuple(usual))
        if usual and not self.bytes_per_row:
            first = bytes(memoryview(usual[0])[:_COUNTED_BYTES])
            self.bytes_per_row = len(first) / max(1, first.count(b"\n"))
        wide = len(piece) - len(usual)
        return wide + (round(size / self.bytes_per_row) if usual else 0)


class WatchedValue(Struct, frozen=True):
    """A value that takes long: each piece of it is progress."""

    value: LargeValue
    advance: Callable[[], None]

    @property
    def binary(self) -> bool:
        return self.value.binary

    def pieces(self) -> Iterator[Any]:
        for piece in self.value.pieces():
            self.advance()
            yield piece


def text_bytes(piece: tuple[Text, ...]) -> int:
    return sum(len(chunk) for chunk in piece)
