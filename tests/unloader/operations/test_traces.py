"""--trace otlp: what a collector receives of a run, decoded from the bytes that were sent."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from processes import command
from schemas.json_schema import checked

from unloader.errors import PartialUnload
from unloader.events import RunStarted, UnitFailed, UnitFinished, UnitStarted
from unloader.operations.account import Account, Job
from unloader.operations.traces import Traces

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Collector:
    """Takes traces by HTTP, as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        """Listen on a free port."""
        self.requests: list[ExportTraceServiceRequest] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces"
                requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def spans(self) -> list[Any]:
        """Return all spans that have come."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector that listens while the test runs."""
    found = Collector()
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def attributes(of: Any) -> dict[str, Any]:
    """Return the attributes of a span or a resource as plain values."""
    return {
        each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in of.attributes
    }


def test_a_collector_receives_the_run(
    source: str, to: tuple[str, ...], tmp_path: Path, collector: Collector
) -> None:
    """A span for the run within the caller's trace, and below it one for the unit."""
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "TRACEPARENT": f"00-{TRACE}-{PARENT}-01",
    }
    command.run("run", source, *to, "--trace", "otlp", env=variables)
    manifest = command.manifest_of(tmp_path / "out")
    sent = (each for request in collector.requests for each in request.resource_spans)
    assert {attributes(each.resource)["service.name"] for each in sent} == {"unloader"}
    spans = {span.name: span for span in collector.spans()}
    run = spans.pop("unload t")
    assert (run.trace_id.hex(), run.parent_span_id.hex()) == (TRACE, PARENT)
    told = attributes(run)
    assert told["unloader.run_id"] == manifest["run_id"]
    assert (told["unloader.rows"], told["unloader.exit_status"]) == (500, 0)
    (unit,) = spans.values()
    assert unit.parent_span_id == run.span_id
    assert run.start_time_unix_nano <= unit.start_time_unix_nano <= unit.end_time_unix_nano
    assert unit.end_time_unix_nano <= run.end_time_unix_nano
    (written,) = manifest["units"]
    assert attributes(unit) == {
        "unloader.unit": written["id"],
        "unloader.attempt": 1,
        "unloader.worker": 0,
        "unloader.node": written["seat"]["node"],
        "unloader.rows": 500,
        "unloader.bytes": manifest["totals"]["bytes"],
    }
    assert run.status.code == unit.status.code == 0


def test_failed_attempts_are_spans_with_an_error() -> None:
    """Each attempt is a span; what did not end in time ends with the run. In memory."""
    exporter = InMemorySpanExporter()
    job = Job(table="t", source="oracle", destination="/x")
    account = Account(job=job, started_at=1000.0)
    traces = Traces(account, exporter)
    started = RunStarted(
        run_id="r", table="t", units=2, workers=2, rows=None, bytes=None, nodes=(0, 1)
    )
    attempts = [
        UnitStarted(worker=n, unit=f"u{n}", partition="P1", attempt=1, rows=None) for n in (0, 1)
    ]
    lost = UnitFailed(worker=1, unit="u1", attempt=1, message="pwd=geheim", retry_in_seconds=0.0)
    done = UnitFinished(worker=0, unit="u0", rows=7, bytes=70, seconds=1.0)
    again = UnitStarted(worker=1, unit="u1", partition="P1", attempt=2, rows=None)
    for event in (started, *attempts, lost, done, again):
        traces.add(event)
        account.add(event)
    account.end(2000.0, PartialUnload("1 of 2 work units failed"))
    traces.end()
    spans = {
        (str(span.name), span.attributes.get("unloader.attempt")): span
        for span in exporter.get_finished_spans()
        if span.attributes is not None
    }
    assert spans["unit u0", 1].status.is_ok
    failed = spans["unit u1", 1]
    assert (failed.status.is_ok, failed.status.description) == (False, "pwd=***")
    assert failed.attributes is not None
    assert failed.attributes["unloader.node"] == 1
    assert not spans["unit u1", 2].status.is_ok
    run = spans["unload t", None]
    assert (run.start_time, run.end_time) == (1000 * 10**9, 2000 * 10**9)
    assert run.status.description == "1 of 2 work units failed"
    assert run.attributes is not None
    assert run.attributes["error.type"] == "PartialUnload"


@pytest.mark.long(OTHER_ROUTES)
def test_a_collector_that_is_not_there(source: str, to: tuple[str, ...]) -> None:
    """The run is complete, and reports it in one line."""
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }
    done = command.ended(
        *("run", source, *to, "--trace", "otlp", "--log-format", "json"),
        env={**os.environ, **variables},
    )
    assert done.returncode == 0
    notices = [line for line in checked(done.stderr) if line["event"] == "notice"]
    assert "some traces could not be sent" in notices[-1]["text"]
