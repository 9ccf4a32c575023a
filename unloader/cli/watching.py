"""Everything that follows a run: its display, metrics, traces, hooks and the report page.

Nothing for the last four is imported unless an option asks for it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import convert

from unloader.cli import streams
from unloader.cli.display.log import Display, LogDisplay
from unloader.cli.mistakes import known_error
from unloader.cli.signals import stop_on_signals
from unloader.errors import FollowUpFailed, UnloaderError
from unloader.events import Event, Observer, Tick
from unloader.manifest.model import ROUTES, Manifest, TablesManifest
from unloader.model import Request

if TYPE_CHECKING:
    from unloader.operations.metrics import MetricsFile
    from unloader.operations.traces import Traces
    from unloader.tuning.analysis import Analysis
    from unloader.tuning.report_records import RunReport, SweepPage, TablesReport


TICK_SECONDS = 0.25


class Ticking(Display):
    """A display that gets a `Tick` a few times a second, and one event at a time.

    The engine sends ticks while workers run. Before and after that, the thread that sends the
    events may wait for minutes in one call. A display without ticks would then look hung.
    """

    def __init__(self, display: Display, *observers: Observer) -> None:
        """Take the display, and what gets each event before it; ticks begin with the first one."""
        self._display, self._observers = display, observers
        # Never taken by `stopping`: the code that a signal interrupts may hold it.
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        """Hand on one event."""
        if self._thread is None and not self._over.is_set():
            self._thread = threading.Thread(target=self._tick, name="ticks", daemon=True)
            self._thread.start()
        with self._lock:
            for observe in self._observers:
                observe(event)
            self._display(event)

    def stopping(self, text: str) -> None:
        """Show that a signal asked to stop; safe in a signal handler."""
        self._display.stopping(text)

    def close(self, finished: bool) -> None:
        """End the ticks, then the display."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._display.close(finished)

    def _tick(self) -> None:
        while not self._over.wait(TICK_SECONDS):
            try:
                self(Tick())
            except OSError:
                # The terminal has gone; the next event ends as it would without us.
                return


@contextmanager
def display_for(values: Mapping[str, Any], *observers: Observer) -> Iterator[Display]:
    """Yield the display that the options ask for, and close it when the run ends.

    The observers get each event before it.
    """
    as_json = values["log_format"] == "json"
    can_draw = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "")
    ticks, display = bool(observers), Display()
    if values["quiet"]:
        pass
    elif values["progress"] == "none":
        display = LogDisplay(as_json=as_json, interval_seconds=None)
    elif values["progress"] == "log" or as_json or not can_draw:
        # A bar needs a terminal even where it was asked for by name; JSON lines are never a bar.
        ticks = True
        display = LogDisplay(as_json=as_json, interval_seconds=values["log_interval"])
    else:
        # Imported on use: rich is slow to load, and most runs have no terminal.
        from unloader.cli.display.bar import BarDisplay

        ticks, display = True, BarDisplay()
    display = Ticking(display, *observers) if ticks else display
    finished = False
    try:
        yield display
        finished = True
    finally:
        display.close(finished)


def check_report(values: Mapping[str, Any]) -> None:
    """Check that the page of `--report` can be made and written, before a long run."""
    if values["report"] is not None:
        from unloader.tuning.report_page import check_page_file

        check_page_file(Path(values["report"]))


def write_report(path: str, found: dict[str, Any] | Analysis) -> None:
    """Write the page of `--report` on a complete run, whose document it takes, or on a sweep."""
    from unloader.tuning.report_page import page_of, write_page_file
    from unloader.tuning.report_records import run_report, sweep_report, tables_report

    report: RunReport | TablesReport | SweepPage
    try:
        if not isinstance(found, dict):
            report = sweep_report(found)
        elif "tables" in found:
            report = tables_report(convert(found, TablesManifest))
        elif ROUTES in found:
            # All routes have the same workers and units: the page shows them for the first.
            manifests = convert(found[ROUTES], list[Manifest])
            report = run_report(manifests[0], manifests)
        else:
            report = run_report(convert(found, Manifest))
        write_page_file(Path(path), page_of(report))
    except UnloaderError as error:
        what, again = "run", "make the page again with: unloader report DEST --output FILE"
        if not isinstance(found, dict):
            what = "sweep"
            again = "write the answer with --json into a file, and give that to unloader report"
        raise FollowUpFailed(f"the {what} is complete, but {error.message}", again) from error


@contextmanager
def watched(
    values: Mapping[str, Any], request: Request | None, tables: str = ""
) -> Iterator[Display]:
    """Yield the display of a run, which informs all watchers; act on its end.

    `tables` are the words of a log for several tables. After a complete run, a failure of the
    command of `--on-success` is FollowUpFailed.
    """
    watch = None
    wanted = (values[name] for name in ("metrics_file", "on_success", "on_failure"))
    if values["trace"] != "none" or any(each is not None for each in wanted):
        watch = _Watch(values, request, tables)
    try:
        with display_for(values, *(() if watch is None else (watch.add,))) as display:
            yield display
    except BaseException as error:
        if watch is not None:
            watch.end(known_error(error))
        raise
    if watch is not None:
        watch.end(None)


class _Watch:
    """Hands each event of a run, and its end, to metrics, traces and the commands of the user."""

    def __init__(self, values: Mapping[str, Any], request: Request | None, tables: str) -> None:
        """Begin to watch."""
        from unloader.operations.account import Account, Job

        job = Job(table="", source="", destination="")
        if request is not None:
            table, query = request.selection.table, request.selection.query
            whole = "several tables" if query is None else "query"
            job = Job(
                table=tables or (whole if table is None else str(table)),
                source=request.source.kind,
                destination=",".join(request.output.destinations),
            )
        self._values = values
        self._account = Account(job=job, started_at=time.time())
        self._metrics: MetricsFile | None = None
        self._traces: Traces | None = None
        if values["metrics_file"] is not None and job.source:
            from unloader.operations.metrics import MetricsFile

            self._metrics = MetricsFile(values["metrics_file"], self._account)
        if values["trace"] != "none":
            from unloader.operations.traces import Traces

            self._traces = Traces(self._account)

    def add(self, event: Event) -> None:
        self._account.add(event)
        if self._traces is not None:
            self._traces.add(event)
        if self._metrics is not None:
            self._metrics.write_if_due()

    def end(self, error: UnloaderError | None) -> None:
        """Report the end of the run, then run the command for that."""
        self._record_end(error)
        if self._traces is not None and (problem := self._traces.end()):
            streams.notice(f"some traces could not be sent: {problem}")
        event: Literal["on-success", "on-failure"] = "on-success" if error is None else "on-failure"
        command = self._values[event.replace("-", "_")]
        if command is None:
            return
        from unloader.operations.hooks import run_hook

        def take(line: str) -> None:
            # A command whose output has no reader must not end the run.
            with suppress(OSError):
                streams.write("hook", {"hook": event, "text": line}, line)

        variables, timeout = self._values["hook_env"], self._values["hook_timeout"]
        if missing := ", ".join(name for name in variables if name not in os.environ):
            text = f"--hook-env: the command does not get these unset variables: {missing}"
            streams.notice(text)
        with stop_on_signals(lambda text: None, earlier=False) as stop:
            why = run_hook(command, self._account, take, stop, timeout, variables)
        failure = f"the command of --{event} failed: {why}"
        if why and error is not None:
            streams.notice(failure)
        elif why:
            failed = FollowUpFailed(
                f"the run is complete, but {failure}",
                "read its output, and do its work by hand; do not unload again",
            )
            self._record_end(failed)
            raise failed

    def _record_end(self, error: UnloaderError | None) -> None:
        self._account.end(time.time(), error)
        if self._metrics is not None:
            try:
                self._metrics.write()
            except OSError as refused:
                path = self._values["metrics_file"]
                streams.notice(f"--metrics-file {path} could not be written: {refused}")
