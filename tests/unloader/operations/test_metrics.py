"""Metrics and traces of a run, and nothing loaded without them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from processes import command
from prometheus_client.parser import text_string_to_metric_families
from schemas.json_schema import checked

from unloader.errors import PartialUnload
from unloader.events import RunStarted, Tick, UnitFailed, UnitFinished, UnitStarted
from unloader.operations import metrics
from unloader.operations.hooks import Account
from unloader.operations.metrics import MetricsFile
from unloader.operations.traces import Traces

DOCS = Path(__file__).parents[3] / "docs" / "operations.md"


def samples(path: Path) -> dict[str, float]:
    """Return the figures of a file by their names; all have the same labels."""
    families = list(text_string_to_metric_families(path.read_text()))
    found = [sample for family in families for sample in family.samples]
    assert len({tuple(sample.labels.items()) for sample in found}) == 1
    assert all(family.documentation for family in families)
    return {sample.name: sample.value for sample in found}


def labels(path: Path) -> dict[str, str]:
    """Return the labels of a file."""
    families = text_string_to_metric_families(path.read_text())
    return next(sample.labels for family in families for sample in family.samples)


def test_a_run_and_one_that_fails(source: str, to: tuple[str, ...], tmp_path: Path) -> None:
    """Totals of the manifest at the end; a failure has its status and leaves the last success."""
    path = tmp_path / "night.prom"
    began = time.time()
    command.run("run", source, *to, "--metrics-file", str(path))
    manifest = command.manifest_of(tmp_path / "out")
    found = samples(path)
    assert found["unloader_run_rows_total"] == 500
    assert found["unloader_run_bytes_total"] == manifest["totals"]["bytes"]
    assert found["unloader_run_units_done_total"] == found["unloader_run_units"] == 1
    assert found["unloader_run_units_failed_total"] == found["unloader_run_retries_total"] == 0
    assert (found["unloader_run_running"], found["unloader_run_exit_status"]) == (0, 0)
    assert began <= found["unloader_run_last_success_timestamp_seconds"] <= time.time()
    assert labels(path) == {"table": "t", "source": "duckdb", "destination": f"{tmp_path}/out"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o644

    command.error_of("run", source, *to, "--metrics-file", str(path), status=6)
    failed = samples(path)
    assert failed["unloader_run_exit_status"] == 6
    assert failed["unloader_run_rows_total"] == 0
    success = "unloader_run_last_success_timestamp_seconds"
    assert failed[success] == found[success]
    assert failed["unloader_run_last_end_timestamp_seconds"] > found[success]
    assert [each.name for each in tmp_path.glob("*prom*")] == ["night.prom"]
    for name in found:
        assert f"`{name}`" in DOCS.read_text(), f"{name} is not in the docs"


def test_while_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is written again when the interval is over, and keeps the end of the last run."""
    path = tmp_path / "x.prom"
    job = {"table": "t", "source": "duckdb", "destination": "/x"}
    account = Account(labels=job, started_at=100.0)
    file = MetricsFile(str(path), account)
    assert samples(path)["unloader_run_running"] == 1
    assert "unloader_run_exit_status" not in samples(path)
    started = RunStarted(run_id="r", table="t", units=3, workers=1, rows=None, bytes=None)
    done = UnitFinished(worker=0, unit="1", rows=7, bytes=70, seconds=1.0)
    again = UnitFailed(worker=0, unit="2", attempt=1, message="m", retry_in_seconds=1.0)
    given_up = UnitFailed(worker=0, unit="2", attempt=2, message="m", retry_in_seconds=None)
    for event in (started, done, again, given_up, Tick()):
        account.add(event)
    file.add(Tick())
    assert samples(path)["unloader_run_rows_total"] == 0
    monkeypatch.setattr(metrics, "INTERVAL_SECONDS", 0.0)
    file.add(Tick())
    now = samples(path)
    assert (now["unloader_run_rows_total"], now["unloader_run_units"]) == (7, 3)
    assert (now["unloader_run_retries_total"], now["unloader_run_units_failed_total"]) == (1, 1)
    account.end(160.0, None)
    file.write()
    assert samples(path)["unloader_run_duration_seconds"] == 60
    MetricsFile(str(path), Account(labels=job, started_at=200.0))
    next_one = samples(path)
    assert next_one["unloader_run_running"] == 1
    assert next_one["unloader_run_last_success_timestamp_seconds"] == 160
    assert next_one["unloader_run_duration_seconds"] == 60


def test_a_file_of_somebody_else_is_no_source_of_figures(tmp_path: Path) -> None:
    """The file of another job, or another kind of file, is not used."""
    path = tmp_path / "x.prom"
    labels = {"source": "duckdb", "destination": "/x"}
    other = Account(labels={**labels, "table": "u"}, started_at=1.0)
    other.end(2.0, None)
    MetricsFile(str(path), other).write()
    account = Account(labels={**labels, "table": 't"\n'}, started_at=1.0)
    MetricsFile(str(path), account)
    assert "unloader_run_exit_status" not in samples(path)
    path.write_text("{{{ no metrics\n")
    MetricsFile(str(path), account)
    assert samples(path)["unloader_run_running"] == 1


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
    job = {"table": "t", "source": "oracle", "destination": "/x"}
    account = Account(labels=job, started_at=1000.0)
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


PROGRAM = """
import json, sys
from unloader.cli import main
status = main(sys.argv[1:])
print(json.dumps([status, sorted(sys.modules)]))
"""


def test_nothing_is_loaded_that_is_not_asked_for(source: str, to: tuple[str, ...]) -> None:
    """Neither our own modules nor the libraries for metrics and traces."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "run", source, *to, "--quiet"],
        capture_output=True,
        text=True,
        check=True,
    )
    status, modules = json.loads(done.stdout)
    assert status == 0
    ours = ("unloader.operations",)
    theirs = ("prometheus_client", "opentelemetry", "google.protobuf", "requests")
    assert [name for name in modules if name.startswith((*ours, *theirs))] == []
