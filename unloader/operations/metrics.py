"""The figures of a run as a file for the textfile collector of Prometheus' node exporter.

The figures of the last success and the last end stay in the file until a run changes them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from unloader.errors import ConfigError
from unloader.operations.account import Account
from writers.files.regular import read_regular

INTERVAL_SECONDS = 10.0
"""Between two writes during a run. Prometheus usually reads every 15 to 60 seconds."""

_LAST_SUCCESS = "unloader_run_last_success_timestamp_seconds"
_LAST_END = "unloader_run_last_end_timestamp_seconds"
_LAST_STATUS = "unloader_run_exit_status"
_LAST_DURATION = "unloader_run_duration_seconds"
_LASTING = (_LAST_SUCCESS, _LAST_END, _LAST_STATUS, _LAST_DURATION)
"""Figures of the previous run, which an active run leaves unchanged."""

_HELP = {
    _LAST_SUCCESS: "End of the last complete run.",
    _LAST_END: "End of the last run.",
    _LAST_STATUS: "Exit status of the last run; 0 is success.",
    _LAST_DURATION: "Duration of the last run.",
    "unloader_run_running": "1 while a run is in progress.",
    "unloader_run_start_timestamp_seconds": "Start of the run.",
    "unloader_run_units": "Work units of the plan.",
    "unloader_run_units_done": "Work units that are finished.",
    "unloader_run_units_failed": "Work units that have failed.",
    "unloader_run_retries": "Attempts at work units that failed and were repeated.",
    "unloader_run_rows": "Rows of the finished work units.",
    "unloader_run_bytes": "Bytes of the finished work units.",
    "unloader_run_route_rows": "Rows that a route of the run has published.",
    "unloader_run_route_bytes": "Bytes that a route of the run has published.",
    "unloader_run_route_files": "Files that a route of the run has published.",
    "unloader_run_tables": "Tables of a run of several tables.",
    "unloader_run_tables_done": "Tables that are published.",
    "unloader_run_tables_failed": "Tables that have failed or were left out.",
}
"""The names of counters without the `_total` that they have in the file."""


class MetricsFile:
    """Writes the file, each time as a whole."""

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
        job = account.job
        self._labels = {"table": job.table, "source": job.source, "destination": job.destination}
        self._lasting = dict(self._earlier())
        try:
            self.write()
        except OSError as error:
            raise ConfigError(
                f"--metrics-file {path} cannot be written: {error.strerror or error}",
                "check the directory and its permissions",
            ) from error

    def write_if_due(self) -> None:
        """Write the file again if it is due; an error is reported at the end of the run."""
        if time.monotonic() - self._written >= INTERVAL_SECONDS:
            with suppress(OSError):
                self.write()

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
        account = self._account
        lasting = dict(self._lasting)
        if account.finished_at is not None and account.status is not None:
            lasting[_LAST_END] = account.finished_at
            lasting[_LAST_STATUS] = account.status
            lasting[_LAST_DURATION] = account.finished_at - account.started_at
            if account.status == 0:
                lasting[_LAST_SUCCESS] = account.finished_at
        gauges = {
            **lasting,
            "unloader_run_running": int(account.finished_at is None),
            "unloader_run_start_timestamp_seconds": account.started_at,
            "unloader_run_units": account.units,
        }
        if (tables := account.tables) is not None:
            gauges["unloader_run_tables"] = tables.total
            gauges["unloader_run_tables_done"] = tables.done
            gauges["unloader_run_tables_failed"] = tables.failed
        counters = {
            "unloader_run_units_done": account.units_done,
            "unloader_run_units_failed": account.units_failed,
            "unloader_run_retries": account.retries,
            "unloader_run_rows": account.rows,
            "unloader_run_bytes": account.bytes,
        }
        for kind, figures in ((self._gauge, gauges), (self._counter, counters)):
            for name, value in figures.items():
                family = kind(name, _HELP[name], labels=list(self._labels))
                family.add_metric(list(self._labels.values()), value)
                yield family
        for figure in ("rows", "bytes", "files") if account.routes else ():
            name = f"unloader_run_route_{figure}"
            family = self._counter(name, _HELP[name], labels=[*self._labels, "route"])
            for route in account.routes:
                labels = [*self._labels.values(), route.route]
                family.add_metric(labels, getattr(route, figure))
            yield family

    def _earlier(self) -> Iterator[tuple[str, float]]:
        """Yield what an earlier run of the same job has left in the file."""
        try:
            families = list(self._parse(read_regular(self._path, follow=True).decode()))
        except (OSError, ValueError):
            return
        for sample in (sample for family in families for sample in family.samples):
            if sample.name in _LASTING and sample.labels == self._labels:
                yield sample.name, sample.value
