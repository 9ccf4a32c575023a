"""Progress as a log on stderr, for cron, DAGs and pipes: plain lines or JSON lines.

The bar and `unloader status` show the same texts as these lines.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from unloader.cli.display import json_lines, render
from unloader.events import (
    Event,
    Notice,
    ParallelismChanged,
    Phase,
    PhaseStarted,
    PointMeasured,
    RouteFinished,
    RunStarted,
    SettingUsed,
    TableFinished,
    TableStaged,
    UnitFailed,
    UnitsKept,
    Verified,
)
from unloader.model import TableCounts
from unloader.nouns import counted
from unloader.status.tally import Figures, Tally

_PLANNING = {
    "connecting": "connecting to the database",
    "snapshot": "taking the snapshot",
    "table": "looking up the table",
    "columns": "reading the columns",
    "partitions": "listing the partitions",
    "extents": "reading where rows are stored",
    "planning": "splitting the table into work units",
    "locking": "locking and checking the tables",
    "measuring": "measuring codecs on a sample",
}
_LATER = {
    "confirming": "checking the finished files",
    "unloading": "unloading",
    "counting": "counting the rows in the source",
    "publishing": "giving the files their final names",
    "committing": "committing to the table",
    "verifying": "reading the files back",
    "comparing": "comparing the values with the source",
    "measuring-disks": "measuring the disks",
    "measuring-source": "measuring the source",
}


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the run is, or how far it came."""

    phase: Phase
    units_done: int
    units: int
    rows: int
    bytes: int
    rows_per_second: float
    mb_per_second: float | None
    """None until the first bytes have left a worker's buffers."""
    percent: float
    seconds: float
    seconds_left: float | None
    directories: dict[str, int] = {}
    """Bytes of finished units in each of several directories."""
    tables: TableCounts | None = None
    """In a run over several."""
    verified: Verified | None = None
    """While files or units are checked: how many have been."""


class Text(Struct, frozen=True, kw_only=True):
    """A line with only its text."""

    text: str


def phase_text(phase: str) -> str:
    """Return the text of a phase; all phases before the first worker are `planning`."""
    if phase in _PLANNING:
        return f"planning: {_PLANNING[phase]}"
    return _LATER.get(phase, phase)


def verified_text(event: Verified) -> str:
    """Return the share of the verification that is done."""
    read = (
        f", {render.size(event.bytes)} of {render.size(event.of_bytes)}" if event.of_bytes else ""
    )
    return f"{event.done}/{event.of} {event.what}{read}"


def verified_share(event: Verified) -> float:
    """Return the same as a number from 0 to 1: of the bytes where they are known."""
    done, of = (event.bytes, event.of_bytes) if event.of_bytes else (event.done, event.of)
    return done / of if of else 1.0


def tables_text(tables: TableCounts) -> str:
    """Return how far a run is with its tables."""
    counts = (
        (tables.staged, "ready to be published"),
        (tables.failed - tables.left_out, "failed"),
        (tables.left_out, "left out"),
    )
    others = "".join(f", {count} {what}" for count, what in counts if count)
    largest = tables.largest_open
    still = f", largest still open: {render.name(largest)}" if largest else ""
    return f"{tables.done}/{tables.total} tables{others}{still}"


LONG_SECONDS = 1.0
"""A phase that lasts at least this many seconds gets a line in a log of text."""

MOST_TABLE_LINES = 50
"""With more tables than this, a log of text has no line for a complete table. It is read as a mail,
and the lines on failed tables must be easy to find."""


class LogDisplay:
    """Writes a line at the start, one every interval, one for each trouble, and one at the end.

    Phases are logged, too: long ones in a log of text, all of them in JSON.
    """

    def __init__(self, *, as_json: bool, interval_seconds: float | None) -> None:
        """Begin silently.

        Args:
            as_json: One JSON object a line instead of text.
            interval_seconds: Between two lines of progress; None leaves out all lines but those
                on troubles.
        """
        self._as_json = as_json
        self._interval = interval_seconds
        self._tally = Tally(time.monotonic())
        self._shown_at = time.monotonic()
        self._phase_logged = True

    def __call__(self, event: Event) -> None:
        """Process one event and write the due lines."""
        now = time.monotonic()
        if isinstance(event, RunStarted):
            self.close(True)
            json_lines.run_is(event.run_id)
            self._shown_at = now
        self._tally.add(event, now)
        if type(event) in EVENT_TEXTS:
            if self._is_logged(event):
                name, text_of = EVENT_TEXTS[type(event)]
                self._write(name, text_of(event), event)
                if isinstance(event, RunStarted) and event.end_sessions_sql and not self._as_json:
                    self._write("", f"to end it in the database: {event.end_sessions_sql}", event)
        elif self._interval is None:
            return
        elif isinstance(event, PhaseStarted):
            # The line at the start of the run covers the first units.
            self._phase_logged = event.phase == "unloading"
            if self._as_json:
                self._log_phase()
        elif now - self._shown_at >= self._interval:
            self._shown_at = now
            self._phase_logged = True
            figures = self._tally.figures(now)
            text = progress_text(figures, self._tally.phase)
            facts = _progress(figures, self._tally.phase)
            if (verified := self._tally.verified) is not None:
                text += f", {verified_text(verified)}"
                facts = replace(facts, verified=verified)
            self._write("progress", text, facts)
        elif not self._phase_logged and now - self._tally.phase_started >= LONG_SECONDS:
            self._log_phase()

    def stopping(self, text: str) -> None:
        """Show that a signal asked to stop; safe in a signal handler."""
        with suppress(OSError):
            line = json_lines.line_of("stopping", Text(text=text)) if self._as_json else _line(text)
            os.write(2, (line + "\n").encode())

    def close(self, finished: bool) -> None:
        """Write how far the run came; the next one of several begins with its `RunStarted`."""
        if self._interval is None or not self._tally.run.units:
            return
        if not finished:
            self._tally.give_up()
        figures = self._tally.figures(time.monotonic())
        name = "run_finished" if finished else "run_stopped"
        self._write(name, ended_text(figures, finished), _progress(figures, self._tally.phase))

    def _is_logged(self, event: Event) -> bool:
        """Return whether an event gets a line: each failure and each notice does."""
        wanted = self._interval is not None
        if isinstance(event, UnitFailed | Notice):
            return True
        if isinstance(event, TableFinished):
            few = self._as_json or event.tables.total <= MOST_TABLE_LINES
            return bool(event.error) or (wanted and few)
        if isinstance(event, TableStaged):
            # In a mail the line on its publication is enough.
            return wanted and self._as_json
        if isinstance(event, SettingUsed):
            # A variable that selects rows is logged in any case: it may be there by accident.
            return bool(setting_text(event)) and (wanted or (event.selects and event.from_variable))
        if isinstance(event, ParallelismChanged):
            return wanted or event.cause in ("limit", "asked")
        return wanted

    def _log_phase(self) -> None:
        self._phase_logged = True
        phase = self._tally.phase
        self._write("phase_started", f"{phase_text(phase)} ...", PhaseStarted(phase=phase))

    def _write(self, name: str, text: str, facts: Struct) -> None:
        # A lost log must not lose the run.
        with suppress(OSError):
            if self._as_json:
                json_lines.write(name, facts)
                return
            sys.stderr.write(_line(text) + "\n")
            sys.stderr.flush()


def _line(text: str) -> str:
    at = datetime.now(UTC)
    return f"{at.strftime('%Y-%m-%dT%H:%M:%SZ')} {render.one_line(text).strip()}"


def started_text(event: RunStarted) -> str:
    """Return the line on the work that is about to start."""
    rows = "" if event.rows is None else f", about {counted(event.rows, 'row')}"
    workers = ("at most " if event.adaptive else "") + counted(event.workers, "worker")
    # A file's header is enough to compare it by eye: size and time are in the result.
    point = f"; snapshot {event.snapshot.partition(' size=')[0]}" if event.snapshot else ""
    units = counted(event.units, "unit")
    return f"unloading {render.name(event.table)}: {units} on {workers}{rows}{point}"


def parallelism_text(event: ParallelismChanged) -> str:
    """Return the line on another number of workers, and why."""
    rate = ""
    if event.rows_per_second:
        rate = f", {render.rows_per_second(event.rows_per_second)} before"
    work = "works" if event.workers == 1 else "work"
    return f"{event.workers} of {counted(event.of, 'worker')} {work}{rate}: {event.reason}"


def kept_text(event: UnitsKept) -> str:
    """Return the line on what a resumed run need not read again."""
    kept = f"{counted(event.units, 'unit')}, {counted(event.rows, 'row')}"
    tables = f"{counted(event.tables, 'table')} complete; " if event.tables else ""
    return f"resumed: {tables}{kept}, {render.size(event.bytes)} are done and checked"


def table_text(event: TableFinished) -> str:
    """Return the line on one of several tables that is over."""
    if event.error:
        return f"{render.name(event.table)} {_not_complete(event)}: {event.error}"
    many = event.tables
    return (
        f"{render.name(event.table)} is complete: {counted(event.rows, 'row')}, "
        f"{render.size(event.bytes)}; {many.done} of {counted(many.total, 'table')}"
    )


def route_text(event: RouteFinished) -> str:
    """Return the line on one of several outputs that is published."""
    return (
        f"route {event.route} is complete: {counted(event.rows, 'row')}, "
        f"{render.size(event.bytes)} in {counted(event.files, 'file')}, {event.directory}"
    )


def _not_complete(event: TableFinished) -> str:
    return "has failed" if event.directory else "is left out"


def setting_text(event: SettingUsed) -> str:
    """Return the line on a setting; "" for one that was asked for and loses nothing."""
    if event.selects:
        return f"selected by: {event.text}"
    return f"set by a variable: {event.text}" if event.from_variable else ""


def progress_text(figures: Figures, phase: str) -> str:
    """Return the line on the progress of the run."""
    if not figures.units:
        return f"{phase_text(phase)}, {render.seconds(figures.seconds)} since the start"
    parts = [
        f"{figures.units_done}/{figures.units} units",
        f"{counted(figures.rows, 'row')}",
        *(() if figures.tables is None else (render.size(figures.bytes),)),
        render.rows_per_second(figures.rows_per_second),
        render.megabytes_per_second(figures.bytes_per_second),
        f"{figures.fraction * 100:.0f} %",
    ]
    if figures.seconds_left and phase == "unloading":
        parts.append(f"about {rough_seconds(figures.seconds_left)} left")
    parts.extend(f"{render.size(size)} in {path}" for path, size in figures.directories)
    if figures.tables is not None:
        parts.append(tables_text(figures.tables))
    return f"{phase}: " + ", ".join(parts)


def ended_text(figures: Figures, finished: bool) -> str:
    """Return the line on the finished work."""
    seconds = max(figures.seconds, 1e-3)
    rows = (figures.rows - figures.rows_kept) / seconds
    size = (figures.bytes - figures.bytes_kept) / seconds
    kept = f" ({figures.units_kept} finished earlier)" if figures.units_kept else ""
    tables = ""
    if figures.tables is not None:
        tables = f"{tables_text(replace(figures.tables, largest_open=''))}, "
    return (
        f"{'done' if finished else 'stopped'}: {tables}"
        f"{figures.units_done}/{figures.units} units{kept}, "
        f"{counted(figures.rows, 'row')}, {render.size(figures.bytes)} in "
        f"{render.seconds(figures.seconds)}, {render.rows_per_second(rows)}, "
        f"{render.megabytes_per_second(size)}"
    )


def failed_text(event: UnitFailed) -> str:
    """Return the line on a failed attempt and on the retry of the unit."""
    if event.retry_in_seconds is None:
        again = "not retried"
    elif not event.counted:
        again = "retried when a worker is free; no retry is used up"
    else:
        again = f"next attempt in {event.retry_in_seconds:.3g} s"
    return f"unit {event.unit}, attempt {event.attempt} failed: {event.message} ({again})"


def rough_seconds(value: float) -> str:
    """Return a duration in one unit, as an estimate deserves no more."""
    if value < 90:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"


def measured_text(point: PointMeasured) -> str:
    """Return the line on a measurement."""
    speed = render.rows_per_second(point.rows_per_second)
    number = f"{point.number} of {point.of}"
    if point.number > point.of:
        number = f"{point.number} ({point.of} planned, repeated because speeds differ)"
    return f"measured {number}: {point.settings}: {speed}"


EVENT_TEXTS: Mapping[type, tuple[str, Callable[[Any], str]]] = {
    UnitFailed: ("unit_failed", failed_text),
    Notice: ("notice", lambda event: str(event.text)),
    ParallelismChanged: ("parallelism", parallelism_text),
    TableFinished: ("table_finished", table_text),
    TableStaged: ("table_staged", lambda event: ""),
    SettingUsed: ("setting", setting_text),
    PointMeasured: ("point_measured", measured_text),
    RouteFinished: ("route_finished", route_text),
    RunStarted: ("run_started", started_text),
    UnitsKept: ("units_kept", kept_text),
}
"""The name of each event in a log of JSON, and its text."""


def _progress(figures: Figures, phase: Phase) -> Progress:
    left, speed = figures.seconds_left, figures.bytes_per_second
    return Progress(
        phase=phase,
        units_done=figures.units_done,
        units=figures.units,
        rows=figures.rows,
        bytes=figures.bytes,
        rows_per_second=round(figures.rows_per_second, 1),
        mb_per_second=None if speed is None else round(speed / 1e6, 3),
        percent=round(figures.fraction * 100, 1),
        seconds=round(figures.seconds, 3),
        seconds_left=None if left is None else round(left, 1),
        directories=dict(figures.directories),
        tables=figures.tables,
    )
