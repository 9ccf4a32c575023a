"""Everything that follows a run beside its display: metrics, traces, hooks and the report page.

Nothing for them is imported unless an option asks for it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unloader import api
from unloader.cli.display import json_lines
from unloader.cli.display.outcome import known_error
from unloader.cli.display.progress import Display, display_for
from unloader.cli.signals import stop_on_signals
from unloader.errors import FollowUpFailed, UnloaderError

if TYPE_CHECKING:
    from unloader.events import Event
    from unloader.model import Request, TableName
    from unloader.operations.account import Account, Job
    from unloader.operations.hooks import Hook
    from unloader.operations.metrics import MetricsFile
    from unloader.operations.traces import Traces


def check_report(values: Mapping[str, Any]) -> None:
    """Find out whether the page of `--report` can be written; nothing is done without one.

    Raises:
        ConfigError: A library or the directory is missing.
    """
    if values["report"] is None:
        return

    api.check_report(Path(values["report"]))


def write_report(values: Mapping[str, Any], manifest: dict[str, Any]) -> None:
    """Write the page of `--report`.

    Args:
        values: The options by their names with underscores.
        manifest: Of the run, which is complete.

    Raises:
        FollowUpFailed: It could not be written.
    """
    if values["report"] is None:
        return

    try:
        api.write_report(Path(values["report"]), api.report_of(manifest))
    except UnloaderError as error:
        raise FollowUpFailed(
            f"the run is complete, but {error.message}",
            "make the page again with: unloader report DEST --output FILE",
        ) from error


WATCHING = ("metrics_file", "on_success", "on_failure")
"""Options that are empty where their action is not requested."""


@contextmanager
def watched(
    values: Mapping[str, Any], request: Request | None, tables: str = ""
) -> Iterator[Display]:
    """Yield the display of a run, which informs all watchers; perform the requested actions at the
    end.

    Args:
        values: The options by their names with underscores.
        request: The request of the run; None without a run.
        tables: Which tables are unloaded, in the words of a log, where they are several.

    Raises:
        ConfigError: A library is missing, or the file of metrics cannot be written.
        FollowUpFailed: The run is complete, and the command of `--on-success` failed.
    """
    if values["trace"] == "none" and all(values[name] is None for name in WATCHING):
        with display_for(values) as display:
            yield display
        return
    watch = _Watch(values, _job_of(request, tables))
    try:
        with display_for(values) as display:
            watch.display = display
            yield watch
    except BaseException as error:
        watch.end(known_error(error))
        raise
    watch.end(None)


class _Watch:
    """Hands each event to the display and to all watchers."""

    display: Display

    def __init__(self, values: Mapping[str, Any], job: Job) -> None:
        """Begin to watch."""
        from unloader.operations.account import Account

        self._values = values
        self._account = Account(job=job, started_at=time.time())
        self._metrics = _metrics(values, self._account)
        self._traces = _traces(values, self._account)

    def __call__(self, event: Event) -> None:
        """Take one event."""
        self._account.add(event)
        if self._traces is not None:
            self._traces.add(event)
        if self._metrics is not None:
            self._metrics.write_if_due()
        self.display(event)

    def stopping(self, text: str) -> None:
        """Record that a signal asked to stop; safe within a signal handler."""
        self.display.stopping(text)

    def close(self, finished: bool) -> None:
        """End the display; the rest is ended by `end`."""
        self.display.close(finished)

    def end(self, error: UnloaderError | None) -> None:
        """Tell all how the run ended, then run the command for that.

        Raises:
            FollowUpFailed: The run is complete, and the command failed.
        """
        self._account.end(time.time(), error)
        if self._traces is not None and (problem := self._traces.end()):
            _notice(f"some traces could not be sent: {problem}")
        self._write_metrics()
        hook = self._hook(error)
        why = self._run(hook) if hook is not None else ""
        if hook is None or not why:
            return
        if error is not None:
            _notice(f"the command of --{hook.event} failed: {why}")
            return
        failed = FollowUpFailed(
            f"the run is complete, but the command of --{hook.event} failed: {why}",
            "read its output, and do its work by hand; do not unload again",
        )
        self._account.end(time.time(), failed)
        self._write_metrics()
        raise failed

    def _hook(self, error: UnloaderError | None) -> Hook | None:
        from unloader.operations.hooks import Hook

        event: Any = "on-success" if error is None else "on-failure"
        command = self._values[event.replace("-", "_")]
        if command is None:
            return None
        variables = self._values["hook_env"]
        if missing := ", ".join(name for name in variables if name not in os.environ):
            _notice(f"--hook-env: the command does not get these unset variables: {missing}")
        return Hook(
            event=event,
            command=command,
            timeout_seconds=self._values["hook_timeout"],
            variables=variables,
        )

    def _run(self, hook: Hook) -> str:
        from unloader.operations.hooks import run_hook

        def tell(line: str) -> None:
            # A command whose output has no reader must not end the run.
            with suppress(OSError):
                if json_lines.is_on():
                    json_lines.write("hook", {"hook": hook.event, "text": line})
                else:
                    sys.stderr.write(line + "\n")
                    sys.stderr.flush()

        with stop_on_signals(lambda text: None, earlier=False) as stop:
            return run_hook(hook, self._account, tell, stop)

    def _write_metrics(self) -> None:
        if self._metrics is None:
            return
        try:
            self._metrics.write()
        except OSError as error:
            path = self._values["metrics_file"]
            _notice(f"--metrics-file {path} could not be written: {error}")


def _job_of(request: Request | None, tables: str) -> Job:
    from unloader.operations.account import Job

    if request is None:
        return Job(table="", source="", destination="")
    asked = request.selection
    return Job(
        table=tables or _what(asked.table, asked.query),
        source=request.source.kind,
        destination=",".join(request.output.destinations),
    )


def _what(table: TableName | None, query: str | None) -> str:
    if table is not None:
        return str(table)
    return "several tables" if query is None else "query"


def _metrics(values: Mapping[str, Any], account: Account) -> MetricsFile | None:
    if values["metrics_file"] is None or not account.job.source:
        return None
    from unloader.operations.metrics import MetricsFile

    return MetricsFile(values["metrics_file"], account)


def _traces(values: Mapping[str, Any], account: Account) -> Traces | None:
    if values["trace"] == "none":
        return None
    from unloader.operations.traces import Traces

    return Traces(account)


def _notice(text: str) -> None:
    with suppress(OSError):
        if json_lines.is_on():
            json_lines.write("notice", {"text": text})
        else:
            sys.stderr.write(f"unloader: notice: {text}\n")
            sys.stderr.flush()
