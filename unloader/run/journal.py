"""The journal of a run: what became of each attempt at a work unit, one JSON object a line.

    {"event": "started", "unit", "attempt", "at"}             before the attempt is handed out
    {"event": "failed", "unit", "attempt", "at", "message"}
    {"event": "staged", "unit", "attempt", "at", "finished"}  its files are complete and synced

What was planned is in the run's record, what is published in the manifest; a unit is in the state
that its last line tells. Lines that a power cut has torn or emptied count no more, nor does any
behind them: the unit is read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, field

from unloader.json_fields import NotAsExpected, fields_to_json, from_json
from unloader.manifest.build import FinishedUnit
from unloader.redaction import redact
from unloader.storage.model import STAGED_LINE


class Progress(Struct, frozen=True, kw_only=True):
    """What a journal tells of a run's units."""

    finished: dict[str, FinishedUnit] = field(default_factory=dict)
    """By id, in the order in which they were done."""
    attempts: dict[str, int] = field(default_factory=dict)
    """Number of the last attempt that was handed out, by the unit's id."""


def started_line(unit: str, attempt: int) -> bytes:
    """Return the line for an attempt that is about to be handed out."""
    return _line("started", unit, attempt)


def failed_line(unit: str, attempt: int, message: str) -> bytes:
    """Return the line for an attempt that failed."""
    return _line("failed", unit, attempt, message=redact(message))


def staged_line(unit: FinishedUnit) -> bytes:
    """Return the line for a unit whose files are staged."""
    result = unit.result
    return _line("staged", result.unit, result.attempt, finished=fields_to_json(unit))


def read_journal(data: bytes) -> Progress:
    """Return what a journal tells.

    Args:
        data: All of it, as far as it was written.
    """
    found = Progress()
    for document in _documents(data):
        try:
            unit, attempt = document["unit"], document["attempt"]
            found.attempts[unit] = max(attempt, found.attempts.get(unit, 0))
            if document["event"] == "staged":
                found.finished[unit] = from_json(FinishedUnit, document["finished"], "a unit")
        except (KeyError, TypeError, NotAsExpected):
            break
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


def _line(event: str, unit: str, attempt: int, **facts: Any) -> bytes:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    document = {"event": event, "unit": unit, "attempt": attempt, "at": at, **facts}
    line = (json.dumps(document) + "\n").encode("ascii")
    assert line.startswith(STAGED_LINE) == (event == "staged")
    return line


def _documents(data: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a journal up to the first line that is not whole."""
    *lines, _ = data.split(b"\n")
    for line in lines:
        try:
            document = json.loads(line)
        except ValueError:
            return
        if not isinstance(document, dict):
            return
        yield document
