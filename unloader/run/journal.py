"""The journal of a run: what became of each attempt at a work unit, one JSON object a line.

    {"event": "started", "unit", "attempt", "at"}             before the attempt is handed out
    {"event": "failed", "unit", "attempt", "at", "message"}
    {"event": "staged", "unit", "attempt", "at", "finished"}  its files are complete and synced

The run's record holds the plan, and the manifest holds the published files. The last line of a unit
holds its state. Lines that a power cut has torn or emptied do not count, nor do the lines after
them: the unit is read again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct, field
from msgspec.json import Decoder, encode

from unloader.model import FinishedUnit
from unloader.redaction import redact


class _Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    event: Literal["started", "failed", "staged"]
    unit: str
    attempt: int
    at: str
    message: str = ""
    finished: FinishedUnit | None = None


_decoder = Decoder(_Line)


class Progress(Struct, frozen=True, kw_only=True):
    """The progress of a run's units by its journal."""

    finished: dict[str, FinishedUnit] = field(default_factory=dict)
    """By id, in the order in which they were done."""
    attempts: dict[str, int] = field(default_factory=dict)
    """Number of the last attempt that was handed out, by the unit's id."""


def line(
    event: Literal["started", "failed", "staged"],
    unit: str,
    attempt: int,
    message: str = "",
    finished: FinishedUnit | None = None,
) -> bytes:
    at, message = datetime.now(UTC).isoformat(timespec="milliseconds"), redact(message)
    found = _Line(
        event=event, unit=unit, attempt=attempt, at=at, message=message, finished=finished
    )
    return encode(found) + b"\n"


def staged_line(unit: FinishedUnit) -> bytes:
    return line("staged", unit.unit, unit.attempt, finished=unit)


def read_journal(data: bytes) -> Progress:
    """Return the progress that a journal shows, as far as the journal was written."""
    found = Progress()
    *lines, _ = data.split(b"\n")
    for each in lines:
        try:
            step = _decoder.decode(each)
        except (ValueError, RecursionError):
            break
        if (step.event == "staged") != (step.finished is not None):
            break
        found.attempts[step.unit] = max(step.attempt, found.attempts.get(step.unit, 0))
        if step.finished is not None:
            found.finished[step.unit] = step.finished
    return found


def compacted(progress: Progress) -> bytes:
    """Return a journal that contains no more than this progress."""
    others = (
        line("started", unit, attempt)
        for unit, attempt in progress.attempts.items()
        if unit not in progress.finished
    )
    return b"".join((*others, *map(staged_line, progress.finished.values())))
