"""The figures of a run as a file for the textfile collector of Prometheus' node exporter.

The figures of the last success and the last end stay in the file until a run changes them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from unloader.errors import ConfigError
from unloader.events import Event
from unloader.operations.hooks import Account
from writers.files.regular import read_regular

INTERVAL_SECONDS = 10.0
"""Between two writes during a run. Prometheus usually reads every 15 to 60 seconds."""

_PREFIX = "unloader_run_"

_LASTING = {
    "last_success_timestamp_seconds": "End of the last complete run.",
    "last_end_timestamp_seconds": "End of the last run.",
    "exit_status": "Exit status of the last run; 0 is success.",
    "duration_seconds": "Duration of the last run.",
}
"""Figures of the previous run, which an active run leaves unchanged."""

_GAUGES = {
    "running": "1 while a run is in progress.",
    "start_timestamp_seconds": "Start of the run.",
    "units": "Work units of the plan.",
    "tables": "Tables of a run of several tables.",
    "tables_done": "Tables that are published.",
    "tables_failed": "Tables that have failed or were left out.",
}
_COUNTERS = {
    "units_done": "Work units that are finished.",
    "units_failed": "Work units that have failed.",
    "retries": "Attempts at work units that failed and were repeated.",
    "rows": "Rows of the finished work units.",
    "bytes": "Bytes of the finished work units.",
}
_OF_ROUTES = {
    "rows": "Rows that a route of the run has published.",
    "bytes": "Bytes that a route of the run has published.",
    "files": "Files that a route of the run has published.",
}
"""Each figure without the `unloader_run_` before its name, and without the `_total` of counters."""


class MetricsFile:
    def __init__(self, path: str, account: Account) -> None:
        """Read figures of earlier runs, and write that a run is active, or raise ConfigError."""
        self._path, self._account = Path(path), account
        try:
            from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
            from prometheus_client.exposition import generate_latest
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError as error:
            raise ConfigError(
                f"--metrics-file needs the module {error.name!r}, which is not installed",
                "pip install 'unloader[metrics]'",
            ) from error
        self._gauge, self._counter = GaugeMetricFamily, CounterMetricFamily
        self._text_of, self._parse = generate_latest, text_string_to_metric_families
        self._labels = account.labels
        self._lasting = dict(self._earlier())
        try:
            self.write()
        except OSError as error:
            raise ConfigError(
                f"--metrics-file {path} cannot be written: {error.strerror or error}",
                "check the directory and its permissions",
            ) from error

    def add(self, event: Event) -> None:
        """Write the file again if it is due; an error is reported at the end of the run."""
        if time.monotonic() - self._written >= INTERVAL_SECONDS:
            with suppress(OSError):
                self.write()

    def end(self) -> str:
        """Write the file for the last time; return the problem, "" without a problem."""
        try:
            self.write()
        except OSError as refused:
            return f"--metrics-file {self._path} could not be written: {refused}"
        return ""

    def write(self) -> None:
        """Replace the file, readable for all; a reader finds the former one or this one."""
        self._written = time.monotonic()
        text = self._text_of(self)
        made = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        try:
            descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                # The exporter is another user, so the umask must not apply.
                os.fchmod(descriptor, 0o644)
                file.write(text)
            os.replace(made, self._path)
        except OSError:
            with suppress(OSError):
                os.unlink(made)
            raise

    def collect(self) -> Iterator[Any]:
        """Yield the figures, as the library asks its collectors for them."""
        account, tally = self._account, self._account.tally
        tables = tally.tables
        gauges: dict[str, float] = dict(self._lasting)
        if account.finished_at is not None and account.status is not None:
            gauges["last_end_timestamp_seconds"] = account.finished_at
            gauges["exit_status"] = account.status
            gauges["duration_seconds"] = account.finished_at - account.started_at
            if account.status == 0:
                gauges["last_success_timestamp_seconds"] = account.finished_at
        gauges["running"] = int(account.finished_at is None)
        gauges["start_timestamp_seconds"] = account.started_at
        gauges["units"] = tally.run.units
        if tables is not None:
            gauges |= {"tables": tables.total, "tables_done": tables.done}
            gauges["tables_failed"] = tables.failed
        for name, value in gauges.items():
            yield self._family(self._gauge, name, (_LASTING | _GAUGES)[name], {(): value})
        for name, text in _COUNTERS.items():
            yield self._family(self._counter, name, text, {(): getattr(tally, name)})
        for name, text in _OF_ROUTES.items() if account.routes else ():
            values: dict[tuple[str, ...], float] = {
                (each.route,): getattr(each, name) for each in account.routes
            }
            yield self._family(self._counter, f"route_{name}", text, values)

    def _family(
        self, kind: Any, name: str, text: str, values: Mapping[tuple[str, ...], float]
    ) -> Any:
        route = ["route"] if any(values) else []
        family = kind(_PREFIX + name, text, labels=[*self._labels, *route])
        for labels, value in values.items():
            family.add_metric([*self._labels.values(), *labels], value)
        return family

    def _earlier(self) -> Iterator[tuple[str, float]]:
        """Yield what an earlier run of the same job has left in the file."""
        try:
            families = list(self._parse(read_regular(self._path, follow=True).decode()))
        except (OSError, ValueError):
            return
        for sample in (sample for family in families for sample in family.samples):
            name = sample.name.removeprefix(_PREFIX)
            if name in _LASTING and sample.labels == self._labels:
                yield name, sample.value
