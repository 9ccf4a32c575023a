"""What finished units report what their worker has waited for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from stages import stages as no_time

from unloader.model import StageLoad, UnitResult
from unloader.tuning.sweep_measurement import waits_of
from writers import cpu_delay

IDLE = StageLoad(
    fetch_cpu_s=0.0,
    encode_cpu_s=0.0,
    write_cpu_s=0.0,
    process_cpu_s=0.0,
    starved_s=0.0,
    fetch_blocked_s=0.0,
    encode_blocked_s=0.0,
    compress_blocked_s=0.0,
    longest_blocked_s=0.0,
    closing_s=0.0,
    fetch_delay_s=0.0,
    encode_delay_s=0.0,
    compress_delay_s=0.0,
    write_delay_s=0.0,
)


def unit(load: StageLoad | None, **seconds: float) -> UnitResult:
    """Return a unit of ten seconds."""
    stages = no_time(load=load, **seconds)
    return UnitResult(
        unit="0",
        attempt=1,
        rows=1,
        files=(),
        stages=stages,
        seconds=10.0,
        cpu_seconds=0.0,
        peak_rss_bytes=0,
    )


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_delay, "is_known", lambda: True)


def waits(result: UnitResult) -> tuple[float | None, float | None, float | None]:
    """Return the shares for the source, the output and a CPU."""
    found = waits_of([result])
    return found.source, found.output, found.cpu


def test_a_wait_for_rows_is_the_source_s_only_while_nothing_of_ours_runs() -> None:
    """Of eight seconds without rows, two were the fetch at work, and two its wait for a CPU.

    Threads of a driver work for the fetch.
    """
    load = replace(IDLE, starved_s=8.0, fetch_cpu_s=1.5, process_cpu_s=2.0, fetch_delay_s=2.0)
    assert waits(unit(load, fetch_s=8.0)) == pytest.approx((0.4, 0.0, 0.2))


def test_a_wait_for_writing_is_the_disk_s_only_while_nothing_of_ours_runs() -> None:
    """The time until files are synced counts; checksums and a delay of the thread do not."""
    load = replace(
        IDLE,
        encode_blocked_s=3.0,
        closing_s=5.0,
        write_cpu_s=1.0,
        write_delay_s=1.0,
        process_cpu_s=1.0,
    )
    assert waits(unit(load, write_s=8.0)) == pytest.approx((0.0, 0.6, 0.1))


def test_a_wait_for_a_codec_is_not_the_disk_s() -> None:
    """Encoding that waits for compressing waits for a CPU at most, else for the disk after it."""
    load = replace(IDLE, encode_blocked_s=8.0, compress_delay_s=2.0, process_cpu_s=6.0)
    seconds = {"compress_s": 8.0, "compress_cpu_s": 6.0, "write_s": 8.0}
    assert waits(unit(load, **seconds)) == pytest.approx((0.0, 0.0, 0.2))
    behind = replace(load, compress_blocked_s=8.0)
    assert waits(unit(behind, **seconds))[1] == pytest.approx(0.4)
