"""--metrics-file: what Prometheus reads of a run, while it continues and after each way to end."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from processes import command
from prometheus_client.parser import text_string_to_metric_families

from unloader.events import RunStarted, Tick, UnitFailed, UnitFinished
from unloader.operations import metrics
from unloader.operations.account import Account, Job
from unloader.operations.metrics import MetricsFile

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
    job = Job(table="t", source="duckdb", destination="/x")
    account = Account(job=job, started_at=100.0)
    file = MetricsFile(str(path), account)
    assert samples(path)["unloader_run_running"] == 1
    assert "unloader_run_exit_status" not in samples(path)
    started = RunStarted(run_id="r", table="t", units=3, workers=1, rows=None, bytes=None)
    done = UnitFinished(worker=0, unit="1", rows=7, bytes=70, seconds=1.0)
    again = UnitFailed(worker=0, unit="2", attempt=1, message="m", retry_in_seconds=1.0)
    given_up = UnitFailed(worker=0, unit="2", attempt=2, message="m", retry_in_seconds=None)
    for event in (started, done, again, given_up, Tick()):
        account.add(event)
    file.write_if_due()
    assert samples(path)["unloader_run_rows_total"] == 0
    monkeypatch.setattr(metrics, "INTERVAL_SECONDS", 0.0)
    file.write_if_due()
    now = samples(path)
    assert (now["unloader_run_rows_total"], now["unloader_run_units"]) == (7, 3)
    assert (now["unloader_run_retries_total"], now["unloader_run_units_failed_total"]) == (1, 1)
    account.end(160.0, None)
    file.write()
    assert samples(path)["unloader_run_duration_seconds"] == 60
    MetricsFile(str(path), Account(job=job, started_at=200.0))
    next_one = samples(path)
    assert next_one["unloader_run_running"] == 1
    assert next_one["unloader_run_last_success_timestamp_seconds"] == 160
    assert next_one["unloader_run_duration_seconds"] == 60


def test_a_file_of_somebody_else_is_no_source_of_figures(tmp_path: Path) -> None:
    """The file of another job, or another kind of file, is not used."""
    path = tmp_path / "x.prom"
    other = Account(job=Job(table="u", source="duckdb", destination="/x"), started_at=1.0)
    other.end(2.0, None)
    MetricsFile(str(path), other).write()
    account = Account(job=Job(table='t"\n', source="duckdb", destination="/x"), started_at=1.0)
    MetricsFile(str(path), account)
    assert "unloader_run_exit_status" not in samples(path)
    path.write_text("{{{ no metrics\n")
    MetricsFile(str(path), account)
    assert samples(path)["unloader_run_running"] == 1
