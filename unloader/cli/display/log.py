"""Progress as a log on stderr, for cron, DAGs and pipes: plain lines or JSON lines.

The bar and `unloader status` show the same texts as these lines. The fields of the lines in JSON
are a contract with the programs that read them. A new event or a new field leaves the version as it
is, so readers ignore unknown events and fields. A field that is removed, or that changes its
meaning, makes a new version: `streams.VERSION`. A test makes docs/log.schema.json from them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from unloader.cli import streams
from unloader.cli.display import render
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
from unloader.nouns import bytes_per_second, counted, size
from unloader.status.recording import Figures, Tally

_PHASES = {
    "connecting": "planning: connecting to the database",
    "snapshot": "planning: taking the snapshot",
    "table": "planning: looking up the table",
    "columns": "planning: reading the columns",
    "partitions": "planning: listing the partitions",
    "extents": "planning: reading where rows are stored",
    "planning": "planning: splitting the table into work units",
    "locking": "planning: locking and checking the tables",
    "measuring": "planning: measuring codecs on a sample",
    "confirming": "checking the finished files",
    "unloading": "unloading",
    "counting": "counting the rows in the source",
    "publishing": "giving the files their final names",
    "committing": "committing to the table",
    "verifying": "reading the files back",
    "comparing": "comparing the values with the source",
    "measuring-network": "measuring the network",
    "measuring-disks": "measuring the disks",
    "measuring-source": "measuring the source",
}

LONG_SECONDS = 1.0
"""A phase that lasts at least this many seconds gets a line in a log of text."""

MOST_TABLE_LINES = 50
"""With more tables than this, a log of text has no line for a complete table. It is read as a mail,
and the lines on failed tables must be easy to find."""

NAMES: Mapping[type[Struct], str] = {
    UnitFailed: "unit_failed",
    Notice: "notice",
    ParallelismChanged: "parallelism",
    TableFinished: "table_finished",
    TableStaged: "table_staged",
    SettingUsed: "setting",
    PointMeasured: "point_measured",
    RouteFinished: "route_finished",
    RunStarted: "run_started",
    UnitsKept: "units_kept",
}
"""The events that have a line each, with their names in a log of JSON."""


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
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

    @classmethod
    def of(cls, figures: Figures, phase: Phase, verified: Verified | None = None) -> Progress:
        left, speed = figures.seconds_left, figures.bytes_per_second
        same = ("units_done", "units", "rows", "bytes", "tables")
        return cls(
            phase=phase,
            **{name: getattr(figures, name) for name in same},
            rows_per_second=round(figures.rows_per_second, 1),
            mb_per_second=None if speed is None else round(speed / 1e6, 3),
            percent=round(figures.fraction * 100, 1),
            seconds=round(figures.seconds, 3),
            seconds_left=None if left is None else round(left, 1),
            directories=dict(figures.directories),
            verified=verified,
        )


class Display:
    """Shows the events of a run on stderr; this one shows nothing."""

    def __call__(self, event: Event) -> None:
        """Take one event."""

    def stopping(self, text: str) -> None:
        """Show that a signal asked to stop; safe in a signal handler."""

    def close(self, finished: bool) -> None:
        """End the display; `finished` tells success from failure."""


class LogDisplay(Display):
    """Writes a line at the start, one every interval, one for each trouble, and one at the end.

    Phases are logged, too: long ones in a log of text, all of them in JSON.
    """

    def __init__(self, *, as_json: bool, interval_seconds: float | None) -> None:
        """Begin silently.

        None as the interval leaves out all lines except those on troubles.
        """
        self._as_json = as_json
        self._interval = interval_seconds
        self._tally = Tally(time.monotonic())
        self._shown_at = time.monotonic()
        self._phase_logged = True

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, RunStarted):
            self.close(True)
            streams.run_id = event.run_id
            self._shown_at = now
        self._tally.add(event, now)
        phase = self._tally.phase
        if type(event) in NAMES:
            wanted = self._interval is not None
            match event:
                case UnitFailed() | Notice():
                    wanted = True
                case TableFinished():
                    few = self._as_json or event.tables.total <= MOST_TABLE_LINES
                    wanted = bool(event.error) or (wanted and few)
                case TableStaged():
                    # In a mail the line on its publication is enough.
                    wanted = wanted and self._as_json
                case SettingUsed():
                    # A variable that selects rows is logged in any case: it may be there by
                    # accident.
                    wanted = wanted or (event.selects and event.from_variable)
                    wanted = wanted and bool(event_text(event))
                case ParallelismChanged():
                    wanted = wanted or event.cause in ("limit", "asked")
            if wanted:
                self._write(NAMES[type(event)], event_text(event), event)
                if isinstance(event, RunStarted) and event.end_sessions_sql and not self._as_json:
                    self._write("", f"to end it in the database: {event.end_sessions_sql}", event)
            return
        if self._interval is None:
            return
        phase_is_due = False
        if isinstance(event, PhaseStarted):
            # The line at the start of the run covers the first units.
            self._phase_logged = event.phase == "unloading"
            phase_is_due = self._as_json
        elif now - self._shown_at >= self._interval:
            self._shown_at = now
            self._phase_logged = True
            figures, verified = self._tally.figures(now), self._tally.verified
            text = progress_text(figures, phase)
            if verified is not None:
                text += f", {verified_text(verified)}"
            self._write("progress", text, Progress.of(figures, phase, verified))
        else:
            since = now - self._tally.phase_started
            phase_is_due = not self._phase_logged and since >= LONG_SECONDS
        if phase_is_due:
            self._phase_logged = True
            self._write("phase_started", f"{phase_text(phase)} ...", PhaseStarted(phase=phase))

    def stopping(self, text: str) -> None:
        with suppress(OSError):
            facts = {"text": text}
            line = streams.line_of("stopping", facts) if self._as_json else _line(text)
            os.write(2, (line + "\n").encode())

    def close(self, finished: bool) -> None:
        """Write how far the run came; the next one of several begins with its `RunStarted`."""
        if self._interval is None or not self._tally.run.units:
            return
        if not finished:
            self._tally.give_up()
        figures = self._tally.figures(time.monotonic())
        name = "run_finished" if finished else "run_stopped"
        self._write(name, ended_text(figures, finished), Progress.of(figures, self._tally.phase))

    def _write(self, name: str, text: str, facts: Struct) -> None:
        # A lost log must not lose the run.
        with suppress(OSError):
            if self._as_json:
                streams.write(name, facts)
            else:
                sys.stderr.write(_line(text) + "\n")
                sys.stderr.flush()


def _line(text: str) -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {render.one_line(text).strip()}"


def event_text(event: Event) -> str:
    """Return the line on an event of `NAMES`; "" for one that needs no line in a text."""
    match event:
        case RunStarted():
            rows = "" if event.rows is None else f", about {counted(event.rows, 'row')}"
            workers = ("at most " if event.adaptive else "") + counted(event.workers, "worker")
            # A file's header is enough to compare it by eye: size and time are in the result.
            point = f"; snapshot {event.snapshot.partition(' size=')[0]}" if event.snapshot else ""
            units = counted(event.units, "unit")
            return f"unloading {render.name(event.table)}: {units} on {workers}{rows}{point}"
        case SettingUsed():
            if event.selects:
                return f"selected by: {event.text}"
            # One that was asked for and loses nothing needs no line.
            return f"set by a variable: {event.text}" if event.from_variable else ""
        case UnitsKept():
            kept = f"{counted(event.units, 'unit')}, {counted(event.rows, 'row')}"
            tables = f"{counted(event.tables, 'table')} complete; " if event.tables else ""
            return f"resumed: {tables}{kept}, {size(event.bytes)} are done and checked"
        case UnitFailed():
            again = "not retried"
            if event.retry_in_seconds is not None:
                again = f"next attempt in {event.retry_in_seconds:.3g} s"
                if not event.counted:
                    again = "retried when a worker is free; no retry is used up"
            return f"unit {event.unit}, attempt {event.attempt} failed: {event.message} ({again})"
        case ParallelismChanged():
            speed = event.rows_per_second
            rate = f", {render.rows_per_second(speed)} before" if speed else ""
            work = "works" if event.workers == 1 else "work"
            return f"{event.workers} of {counted(event.of, 'worker')} {work}{rate}: {event.reason}"
        case TableFinished():
            name, many = render.name(event.table), event.tables
            if event.error:
                return f"{name} {'has failed' if event.directory else 'is left out'}: {event.error}"
            return (
                f"{name} is complete: {counted(event.rows, 'row')}, "
                f"{size(event.bytes)}; {many.done} of {counted(many.total, 'table')}"
            )
        case RouteFinished():
            return (
                f"route {event.route} is complete: {counted(event.rows, 'row')}, "
                f"{size(event.bytes)} in {counted(event.files, 'file')}, {event.directory}"
            )
        case PointMeasured():
            number = f"{event.number} of {event.of}"
            if event.number > event.of:
                number = f"{event.number} ({event.of} planned, repeated because speeds differ)"
            speed = event.rows_per_second
            return f"measured {number}: {event.settings}: {render.rows_per_second(speed)}"
        case Notice():
            return event.text
    return ""


def phase_text(phase: str) -> str:
    """Return the text of a phase; all phases before the first worker are `planning`."""
    return _PHASES.get(phase, phase)


def progress_text(figures: Figures, phase: str) -> str:
    if not figures.units:
        return f"{phase_text(phase)}, {render.seconds(figures.seconds)} since the start"
    written = "" if figures.tables is None else f", {size(figures.bytes)}"
    parts = [
        f"{figures.units_done}/{figures.units} units",
        f"{counted(figures.rows, 'row')}{written}, {speed_text(figures)}",
        f"{figures.fraction * 100:.0f} %",
    ]
    if figures.seconds_left and phase == "unloading":
        parts.append(f"about {rough_seconds(figures.seconds_left)} left")
    parts.extend(f"{size(each)} in {path}" for path, each in figures.directories)
    if figures.tables is not None:
        parts.append(tables_text(figures.tables))
    return f"{phase}: " + ", ".join(parts)


def speed_text(figures: Figures) -> str:
    rate = render.rows_per_second(figures.rows_per_second)
    return f"{rate}, {render.megabytes_per_second(figures.bytes_per_second)}"


def ended_text(figures: Figures, finished: bool) -> str:
    seconds = max(figures.seconds, 1e-3)
    kept = f" ({figures.units_kept} finished earlier)" if figures.units_kept else ""
    tables = ""
    if figures.tables is not None:
        tables = f"{tables_text(replace(figures.tables, largest_open=''))}, "
    return (
        f"{'done' if finished else 'stopped'}: {tables}"
        f"{figures.units_done}/{figures.units} units{kept}, "
        f"{counted(figures.rows, 'row')}, {size(figures.bytes)} in "
        f"{render.seconds(figures.seconds)}, "
        f"{render.rows_per_second((figures.rows - figures.rows_kept) / seconds)}, "
        f"{bytes_per_second((figures.bytes - figures.bytes_kept) / seconds)}"
    )


def verified_text(event: Verified) -> str:
    read = f", {size(event.bytes)} of {size(event.of_bytes)}"
    return f"{event.done}/{event.of} {event.what}{read if event.of_bytes else ''}"


def tables_text(tables: TableCounts) -> str:
    counts = (
        (tables.staged, "ready to be published"),
        (tables.failed - tables.left_out, "failed"),
        (tables.left_out, "left out"),
    )
    others = "".join(f", {count} {what}" for count, what in counts if count)
    largest = tables.largest_open
    still = f", largest still open: {render.name(largest)}" if largest else ""
    return f"{tables.done}/{tables.total} tables{others}{still}"


def rough_seconds(value: float) -> str:
    """Return a duration in one unit, as an estimate deserves no more."""
    if value < 90:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"
