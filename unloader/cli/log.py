"""Progress as a log: plain lines or JSON lines on stderr, for cron, DAGs and pipes."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from unloader.cli import render
from unloader.cli.tally import Figures, Tally
from unloader.events import Event, Notice, RunStarted, UnitFailed
from unloader.locations import redact


class LogDisplay:
    """Writes a line at the start, one every interval, one for each trouble, and one at the end."""

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

    def __call__(self, event: Event) -> None:
        """Take one event and write what is due."""
        now = time.monotonic()
        if isinstance(event, RunStarted):
            self.close(True)
        self._tally.add(event, now)
        if isinstance(event, UnitFailed):
            self._write("unit_failed", failed_text(event), dataclasses.asdict(event))
        elif isinstance(event, Notice):
            self._write("notice", event.text, {"text": event.text})
        elif self._interval is None:
            return
        elif isinstance(event, RunStarted):
            self._shown_at = now
            self._write("run_started", started_text(event), dataclasses.asdict(event))
            if event.end_sessions_sql and not self._as_json:
                self._write("", f"to end it in the database: {event.end_sessions_sql}", {})
        elif now - self._shown_at >= self._interval:
            self._shown_at = now
            figures = self._tally.figures(now)
            text = progress_text(figures, self._tally.phase)
            self._write("progress", text, _json_figures(figures, self._tally.phase))

    def stopping(self, text: str) -> None:
        """Tell that a signal asked to stop; safe within a signal handler."""
        with suppress(OSError):
            os.write(2, (self._line("stopping", text, {"text": text}) + "\n").encode())

    def close(self, finished: bool) -> None:
        """Write how far the run came; the next one of several begins with its `RunStarted`."""
        if self._interval is None or not self._tally.run.units:
            return
        if not finished:
            self._tally.give_up()
        figures = self._tally.figures(time.monotonic())
        name = "run_finished" if finished else "run_stopped"
        self._write(name, ended_text(figures, finished), _json_figures(figures, self._tally.phase))

    def _write(self, name: str, text: str, facts: dict[str, Any]) -> None:
        # Nobody reading the log is no reason to lose the run.
        with suppress(OSError):
            sys.stderr.write(self._line(name, text, facts) + "\n")
            sys.stderr.flush()

    def _line(self, name: str, text: str, facts: dict[str, Any]) -> str:
        at = datetime.now(timezone.utc)
        if not self._as_json:
            line = render.one_line(redact(text)).strip()
            return f"{at.strftime('%Y-%m-%dT%H:%M:%SZ')} {line}"
        head = {"ts": at.isoformat(timespec="milliseconds"), "event": name}
        return redact(json.dumps({**head, "run_id": self._tally.run.run_id, **facts}))


def started_text(event: RunStarted) -> str:
    """Return the line that tells what is about to be done."""
    rows = "" if event.rows is None else f", about {render.count(event.rows)} rows"
    workers = _counted(event.workers, "worker")
    point = f", at {event.snapshot}" if event.snapshot else ""
    return f"unloading {event.table}: {_counted(event.units, 'unit')} on {workers}{rows}{point}"


def progress_text(figures: Figures, phase: str) -> str:
    """Return the line that tells how far the run is."""
    if not figures.units:
        return f"{phase}, {render.seconds(figures.seconds)} so far"
    parts = [
        f"{figures.units_done}/{figures.units} units",
        f"{render.count(figures.rows)} rows",
        render.rows_per_second(figures.rows_per_second),
        render.megabytes_per_second(figures.bytes_per_second),
        f"{figures.fraction * 100:.0f} %",
    ]
    if figures.seconds_left and phase == "unloading":
        parts.append(f"about {rough_seconds(figures.seconds_left)} left")
    parts.extend(f"{render.size(size)} in {path}" for path, size in figures.directories)
    return f"{phase}: " + ", ".join(parts)


def ended_text(figures: Figures, finished: bool) -> str:
    """Return the line that tells what was done."""
    rate = figures.rows / max(figures.seconds, 1e-3)
    return (
        f"{'done' if finished else 'stopped'}: {figures.units_done}/{figures.units} units, "
        f"{render.count(figures.rows)} rows, {render.size(figures.bytes)} in "
        f"{render.seconds(figures.seconds)}, {render.rows_per_second(rate)}, "
        f"{render.megabytes_per_second(figures.bytes / max(figures.seconds, 1e-3))}"
    )


def failed_text(event: UnitFailed) -> str:
    """Return the line on a failed attempt and what becomes of the unit."""
    again = (
        "it is given up"
        if event.retry_in_seconds is None
        else f"next attempt in {event.retry_in_seconds:g} s"
    )
    return f"unit {event.unit}, attempt {event.attempt} failed: {event.message} ({again})"


def rough_seconds(value: float) -> str:
    """Return a duration in one unit, as an estimate deserves no more."""
    if value < 90:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"


def _json_figures(figures: Figures, phase: str) -> dict[str, Any]:
    left = figures.seconds_left
    return {
        "phase": phase,
        "units_done": figures.units_done,
        "units": figures.units,
        "rows": figures.rows,
        "bytes": figures.bytes,
        "rows_per_second": round(figures.rows_per_second, 1),
        "mb_per_second": round(figures.bytes_per_second / 1e6, 3),
        "percent": round(figures.fraction * 100, 1),
        "seconds": round(figures.seconds, 3),
        "seconds_left": None if left is None else round(left, 1),
        **({"directories": dict(figures.directories)} if figures.directories else {}),
    }


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"
