"""OpenTelemetry traces of a run: a span for the run, and one for each attempt at a work unit.

The parent makes the spans from the events of the run. The standard variables `OTEL_*` name their
destination; `TRACEPARENT` makes the run a part of a trace.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from unloader import __version__
from unloader.errors import ConfigError
from unloader.events import Event, RunStarted, UnitFailed, UnitFinished, UnitStarted
from unloader.operations.hooks import Account
from unloader.redaction import redact

SERVICE = "unloader"
"""Name of the service, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES names another."""

_FLUSH_MILLISECONDS = 10_000
"""Longest wait, at the end, for a collector to take the last spans."""


class _Heard(logging.Handler):
    """Keeps the messages of the library out of the log."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


class Traces:
    def __init__(self, account: Account, exporter: Any = None) -> None:
        """Begin the span of a run, over HTTP without an exporter; ConfigError if that cannot be."""
        try:
            from opentelemetry import trace
            from opentelemetry.propagate import extract
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise _missing(error) from error
        self._account, self._trace = account, trace
        self._heard, logger = _Heard(logging.WARNING), logging.getLogger("opentelemetry")
        logger.addHandler(self._heard)
        logger.propagate = False
        if exporter is None:
            try:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

                exporter = OTLPSpanExporter()
            except ImportError as error:
                raise _missing(error) from error
            except ValueError as error:
                raise ConfigError(
                    f"a variable OTEL_EXPORTER_OTLP_... has an invalid value: {error}", "correct it"
                ) from error
        service = {"service.version": __version__}
        named = "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        if not named and not os.environ.get("OTEL_SERVICE_NAME"):
            service["service.name"] = SERVICE
        self._provider = TracerProvider(resource=Resource.create(service))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(SERVICE, __version__)
        # Variables with the trace of the program that started the run.
        carried = ("TRACEPARENT", "TRACESTATE")
        parent = extract({name.lower(): os.environ.get(name, "") for name in carried})
        self._run = self._tracer.start_span(
            f"unload {account.labels['table']}",
            context=parent,
            start_time=_nanoseconds(account.started_at),
            attributes=_named(account.labels),
        )
        self._within = trace.set_span_in_context(self._run)
        self._units: dict[int, Any] = {}
        self._nodes: tuple[int, ...] = ()

    def add(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._nodes = event.nodes
                self._run.set_attributes(_named({"run_id": event.run_id, "units": event.units}))
            case UnitStarted():
                names = ("unit", "attempt", "worker", "partition")
                found: dict[str, Any] = {name: getattr(event, name) for name in names}
                if event.partition is None:
                    del found["partition"]
                if event.worker < len(self._nodes):
                    found["node"] = self._nodes[event.worker]
                self._units[event.worker] = self._tracer.start_span(
                    f"unit {event.unit}", context=self._within, attributes=_named(found)
                )
            case UnitFinished():
                self._end_unit(event.worker, rows=event.rows, bytes=event.bytes)
            case UnitFailed():
                self._end_unit(event.worker, event.message)

    def end(self) -> str:
        """End and send all spans; return the error of the library, "" without an error."""
        account, tally = self._account, self._account.tally
        for worker in tuple(self._units):
            self._end_unit(worker, "the run ended before the unit was finished")
        figures = {"rows": tally.rows, "bytes": tally.bytes, "retries": tally.retries}
        if (tables := tally.tables) is not None:
            figures |= {"tables": tables.total, "tables_done": tables.done}
            figures["tables_failed"] = tables.failed
        figures["exit_status"] = account.status or 0
        self._run.set_attributes(_named(figures))
        if account.error is not None:
            self._fail(self._run, account.error.message, type(account.error).__name__)
        self._run.end(end_time=_nanoseconds(account.finished_at or time.time()))
        self._provider.force_flush(_FLUSH_MILLISECONDS)
        self._provider.shutdown()
        logging.getLogger("opentelemetry").removeHandler(self._heard)
        return self._heard.text

    def _end_unit(self, worker: int, error: str = "", **figures: int) -> None:
        if (span := self._units.pop(worker, None)) is not None:
            span.set_attributes(_named(figures))
            if error:
                self._fail(span, error)
            span.end()

    def _fail(self, span: Any, message: str, kind: str = "") -> None:
        if kind:
            span.set_attribute("error.type", kind)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, redact(message)))


def _named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {f"unloader.{name}": value for name, value in attributes.items()}


def _missing(error: ImportError) -> ConfigError:
    return ConfigError(
        f"--trace needs the module {error.name!r}, which is not installed",
        "pip install 'unloader[otel]'",
    )


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
