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
    from unloader.operations.hooks import Account
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
        if self._thread is None and not self._over.is_set():
            self._thread = threading.Thread(target=self._tick, name="ticks", daemon=True)
            self._thread.start()
        with self._lock:
            for observe in self._observers:
                observe(event)
            self._display(event)

    def stopping(self, text: str) -> None:
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


def check_report(path: str) -> None:
    """Check that the page of `--report` can be made and written, before a long run."""
    from unloader.tuning.report_page import check_page_file

    check_page_file(Path(path))


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
    """Yield the display of a run, which informs metrics and traces; then act on the end of the run.

    `tables` are the words of a log for several tables. After a complete run, a failure of the
    command of `--on-success` is FollowUpFailed.
    """
    wanted = (values[name] for name in ("metrics_file", "on_success", "on_failure"))
    if values["trace"] == "none" and all(each is None for each in wanted):
        with display_for(values) as display:
            yield display
        return
    from unloader.operations.hooks import Account

    labels = dict.fromkeys(("table", "source", "destination"), "")
    if request is not None:
        table, query = request.selection.table, request.selection.query
        whole = "several tables" if query is None else "query"
        labels["table"] = tables or (whole if table is None else str(table))
        labels["source"] = request.source.kind
        labels["destination"] = ",".join(request.output.destinations)
    account = Account(labels=labels, started_at=time.time())
    metrics, traces = None, None
    observers: list[Observer] = [account.add]
    if values["metrics_file"] is not None and request is not None:
        from unloader.operations.metrics import MetricsFile

        metrics = MetricsFile(values["metrics_file"], account)
        observers.append(metrics.add)
    if values["trace"] != "none":
        from unloader.operations.traces import Traces

        traces = Traces(account)
        observers.append(traces.add)
    error: UnloaderError | None = None
    try:
        with display_for(values, *observers) as display:
            yield display
    except BaseException as raised:
        error = known_error(raised)
        raise
    finally:
        account.end(time.time(), error)
        if metrics is not None and (problem := metrics.end()):
            streams.notice(problem)
        if traces is not None and (problem := traces.end()):
            streams.notice(f"some traces could not be sent: {problem}")
        if failed := _hook(values, account):
            account.end(time.time(), failed)
            if metrics is not None and (problem := metrics.end()):
                streams.notice(problem)
            raise failed


def _hook(values: Mapping[str, Any], account: Account) -> FollowUpFailed | None:
    """Run the command of the user for the end of the run; return its failure after a success."""
    event: Literal["on-success", "on-failure"] = "on-failure" if account.error else "on-success"
    command, variables = values[event.replace("-", "_")], values["hook_env"]
    if command is None:
        return None
    from unloader.operations.hooks import run_hook

    def take(line: str) -> None:
        # A command whose output has no reader must not end the run.
        with suppress(OSError):
            streams.write("hook", {"hook": event, "text": line}, line)

    if missing := ", ".join(name for name in variables if name not in os.environ):
        text = f"--hook-env: the command does not get these unset variables: {missing}"
        streams.notice(text)
    with stop_on_signals(lambda text: None, earlier=False) as stop:
        why = run_hook(command, account, take, stop, values["hook_timeout"], variables)
    failure = f"the command of --{event} failed: {why}"
    if why and account.error is None:
        return FollowUpFailed(
            f"the run is complete, but {failure}",
            "read its output, and do its work by hand; do not unload again",
        )
    if why:
        streams.notice(failure)
    return None
