"""How far a run is, from its events alone."""

from __future__ import annotations

import pytest

from unloader.cli.display.log import ended_text, progress_text
from unloader.events import (
    Event,
    PhaseStarted,
    RunFinished,
    RunStarted,
    UnitAdvanced,
    UnitFailed,
    UnitFinished,
    UnitStarted,
)
from unloader.status.model import MOST, Speeds
from unloader.status.recording import Tally


def started(rows: int | None = 4000, units: int = 4) -> RunStarted:
    """Return the first event of a run."""
    return RunStarted(run_id="r", table="t", units=units, workers=2, rows=rows, bytes=None)


def unit(name: str, worker: int = 0, rows: int | None = 1000) -> UnitStarted:
    """Return the event of a unit that a worker takes."""
    return UnitStarted(worker=worker, unit=name, partition=None, attempt=1, rows=rows)


def advanced(name: str, rows: int, worker: int = 0) -> UnitAdvanced:
    """Return the event of a unit's progress at 10 bytes a row."""
    return UnitAdvanced(worker=worker, unit=name, rows=rows, bytes=rows * 10)


def finished(name: str, rows: int, worker: int = 0) -> UnitFinished:
    """Return the event of a finished unit at 10 bytes a row."""
    return UnitFinished(worker=worker, unit=name, rows=rows, bytes=rows * 10, seconds=1.0)


def tally(*events: Event) -> Tally:
    """Return the tally of events at time 0."""
    made = Tally(0.0)
    for event in events:
        made.add(event, 0.0)
    return made


def test_rows_of_finished_and_running_units_add_up() -> None:
    """The totals count finished units and the rows of running attempts so far."""
    figures = tally(
        started(), unit("1"), finished("1", 900), unit("2"), advanced("2", 100)
    ).figures(10.0)
    assert (figures.rows, figures.bytes, figures.units_done) == (1000, 10_000, 1)
    assert figures.rows_per_second == pytest.approx(100)
    assert figures.bytes_per_second == pytest.approx(1000)


def test_a_failed_attempt_takes_its_rows_back() -> None:
    """What a failed attempt had written counts no more, and no rate falls below zero."""
    made = tally(started(), unit("1"), advanced("1", 500))
    assert made.figures(1.0).rows == 500
    failed = UnitFailed(worker=0, unit="1", attempt=1, message="x", retry_in_seconds=1.0)
    made.add(failed, 40.0)
    figures = made.figures(40.0)
    assert figures.rows == 0
    assert figures.rows_per_second == 0


def test_a_late_word_from_a_unit_that_is_over_is_ignored() -> None:
    """Progress of a unit that the worker no longer has changes nothing."""
    made = tally(started(), unit("1"), finished("1", 10), unit("2"), advanced("1", 999))
    assert made.figures(1.0).rows == 10


def test_a_wrong_estimate_never_passes_the_end() -> None:
    """Finished units count with their estimate; 100 % means that all are done."""
    made = tally(started(), unit("1"), finished("1", 9000), unit("2"), advanced("2", 9000))
    assert made.figures(1.0).fraction == pytest.approx(0.5)
    for name in ("2", "3", "4"):
        made.add(unit(name), 1.0)
        made.add(finished(name, 1), 1.0)
    assert made.figures(2.0).fraction == 1.0


def test_without_estimates_units_are_counted() -> None:
    """Where the source has no row counts, the share of finished units is shown."""
    made = tally(started(rows=None), unit("1", rows=None), finished("1", 5), unit("2", rows=None))
    assert made.figures(1.0).fraction == 0.25


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    """A run that stalls shows a rate that falls to zero after any speed."""
    made = tally(started(), unit("1"))
    made.add(advanced("1", 1000), 10.0)
    assert made.figures(10.0).rows_per_second == pytest.approx(100)
    for second in range(20, 120, 10):
        figures = made.figures(float(second))
    assert figures.rows_per_second == 0


def test_a_second_run_starts_from_nothing() -> None:
    """A command that unloads twice shows each run for itself."""
    made = tally(started(), unit("1"), finished("1", 10))
    made.add(PhaseStarted(phase="connecting"), 5.0)
    made.add(started(units=2), 5.0)
    figures = made.figures(5.0)
    assert (figures.rows, figures.units_done, figures.units, figures.seconds) == (0, 0, 2, 0.0)


def test_lines_tell_units_rows_rates_share_and_time_left() -> None:
    """The line of progress has every figure with its unit, MB being 10^6 bytes."""
    made = tally(started(), unit("1"), finished("1", 1000))
    assert progress_text(made.figures(100.0), "unloading") == (
        "unloading: 1/4 units, 1,000 rows, 10 rows/s, 0.0001 MB/s, 25 %, about 5 min left"
    )
    assert ended_text(made.figures(100.0), False).startswith("stopped: 1/4 units, 1,000 rows, 10.0")


def test_before_the_plan_stands_the_phase_is_told() -> None:
    """Planning takes time, too, and has no units yet."""
    made = tally(PhaseStarted(phase="connecting"), PhaseStarted(phase="columns"))
    text = "planning: reading the columns, 1 min 1 s since the start"
    assert progress_text(made.figures(61.0), made.phase) == text


def test_bytes_per_second_are_unknown_until_the_first_bytes_come() -> None:
    """Rows are counted as they are fetched, bytes as buffers get full: none yet is not zero."""
    made = tally(started(), unit("1"))
    made.add(UnitAdvanced(worker=0, unit="1", rows=1000, bytes=0), 1.0)
    figures = made.figures(2.0)
    assert figures.bytes_per_second is None
    assert "500 rows/s, - MB/s" in progress_text(figures, "unloading")


def test_a_finished_run_has_the_figures_of_its_manifest() -> None:
    """The log's last line and the result use one clock: the clock of the run, planning included."""
    made = tally(PhaseStarted(phase="connecting"))
    made.add(started(units=1), 3.0)
    made.add(unit("1"), 3.0)
    made.add(finished("1", 1000), 4.0)
    assert made.figures(4.0).seconds == 4.0
    made.add(RunFinished(rows=1000, bytes=9999, seconds=5.0), 4.5)
    assert ended_text(made.figures(7.0), True) == (
        "done: 1/1 units, 1,000 rows, 10.0 kB in 5.0 s, 200 rows/s, 0.0020 MB/s"
    )


def test_means_between_looks() -> None:
    """Each figure is the mean since the look before; rows that are taken back do not count."""
    found = Speeds()
    assert found.values() == ()
    for now, rows in ((10.0, 0), (11.0, 100), (13.0, 500), (14.0, 450)):
        found.add(now, rows)
    assert found.values() == (100.0, 200.0, 0.0)


def test_a_long_run_has_no_more_of_them() -> None:
    """They cover all of a run of any length."""
    found = Speeds()
    for second in range(20_000):
        found.add(float(second), second * 50 if second < 10_000 else 500_000)
    values = found.values()
    assert MOST / 3 < len(values) <= MOST + 1
    full = [value for value in values if value == 50.0]
    assert list(values[: len(full)]) == full
    assert 0.4 < len(full) / len(values) < 0.6, "the run stood still in its second half"
    assert sum(0 < value < 50 for value in values) <= 1
    assert values[-1] == 0.0
