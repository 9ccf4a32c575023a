"""The journal of a run: what became of each attempt at a work unit, one JSON object a line.

    {"event": "started", "unit", "attempt", "at"}             before the attempt is handed out
    {"event": "failed", "unit", "attempt", "at", "message"}
    {"event": "staged", "unit", "attempt", "at", "finished"}  its files are complete and synced

The run's record holds the plan, and the manifest holds the published files. The last line of a unit
holds its state. Lines that a power cut has torn or emptied count no more, nor does any behind them:
the unit is read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import Struct, field
from msgspec.json import Decoder, encode

from unloader.model import FinishedUnit
from unloader.redaction import redact


class _Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="event"):
    unit: str
    attempt: int
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))


class _Started(_Line, frozen=True, kw_only=True, tag="started"):
    pass


class _Failed(_Line, frozen=True, kw_only=True, tag="failed"):
    message: str


class _Staged(_Line, frozen=True, kw_only=True, tag="staged"):
    finished: FinishedUnit


_decoder = Decoder(_Started | _Failed | _Staged)


class Progress(Struct, frozen=True, kw_only=True):
    """The progress of a run's units by its journal."""

    finished: dict[str, FinishedUnit] = field(default_factory=dict)
    """By id, in the order in which they were done."""
    attempts: dict[str, int] = field(default_factory=dict)
    """Number of the last attempt that was handed out, by the unit's id."""


def started_line(unit: str, attempt: int) -> bytes:
    """Return the line for an attempt that is about to be handed out."""
    return _text(_Started(unit=unit, attempt=attempt))


def failed_line(unit: str, attempt: int, message: str) -> bytes:
    """Return the line for an attempt that failed."""
    return _text(_Failed(unit=unit, attempt=attempt, message=redact(message)))


def staged_line(unit: FinishedUnit) -> bytes:
    """Return the line for a unit whose files are staged."""
    return _text(_Staged(unit=unit.unit, attempt=unit.attempt, finished=unit))


def read_journal(data: bytes) -> Progress:
    """Return what a journal tells.

    Args:
        data: All of it, as far as it was written.
    """
    found = Progress()
    *lines, _ = data.split(b"\n")
    for each in lines:
        try:
            line = _decoder.decode(each)
        except (ValueError, RecursionError):
            break
        found.attempts[line.unit] = max(line.attempt, found.attempts.get(line.unit, 0))
        if isinstance(line, _Staged):
            found.finished[line.unit] = line.finished
    return found


def compacted(progress: Progress) -> bytes:
    """Return a journal that tells no more than this progress."""
    others = (
        started_line(unit, attempt)
        for unit, attempt in progress.attempts.items()
        if unit not in progress.finished
    )
    return b"".join((*others, *map(staged_line, progress.finished.values())))


def without(progress: Progress, units: Iterable[str]) -> Progress:
    """Return the progress with units that are to be read again."""
    gone = set(units)
    kept = {unit: each for unit, each in progress.finished.items() if unit not in gone}
    return Progress(finished=kept, attempts=progress.attempts)


def _text(line: _Line) -> bytes:
    return encode(line) + b"\n"
