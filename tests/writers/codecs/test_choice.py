"""The rules of the presets, on figures made up for them: no clock, no codec."""

from __future__ import annotations

import pytest

from writers.codecs.choice import (
    CANDIDATES,
    PRESETS,
    UNMEASURED,
    Candidate,
    CodecFigures,
    Workload,
    choose,
    label,
    pick,
    predict,
)
from writers.model import Compression

GB = 10**9
NONE = CodecFigures(compression=Compression(), sample_bytes=GB, ratio=1.0, cpu_seconds_per_byte=0.0)
LIGHT = CodecFigures(
    compression=Compression(codec="lz4", level=1),
    sample_bytes=GB,
    ratio=1.2,
    cpu_seconds_per_byte=2e-9,
)
MIDDLE = CodecFigures(
    compression=Compression(codec="zstd", level=1),
    sample_bytes=GB,
    ratio=1.6,
    cpu_seconds_per_byte=3e-9,
)
HEAVY = CodecFigures(
    compression=Compression(codec="zstd", level=9),
    sample_bytes=GB,
    ratio=1.8,
    cpu_seconds_per_byte=30e-9,
)
ALL = (NONE, LIGHT, MIDDLE, HEAVY)


def load(
    *, disk: float | None = None, fetch: float = 0.0, cores: int = 4, one_thread: bool = False
) -> Workload:
    """Return work that four workers encode at 1 GB a second each."""
    return Workload(
        fetch_seconds_per_byte=fetch,
        fetch_cpu_per_byte=0.0,
        encode_cpu_per_byte=1e-9,
        one_thread=one_thread,
        parallelism=4,
        cores=cores,
        disk_bytes_per_second=disk,
    )


def predictions(work: Workload) -> tuple[Candidate, ...]:
    """Return what each codec would take."""
    return tuple(predict(work, each) for each in ALL)


def picks(work: Workload) -> dict[str, str]:
    """Return the codec of each preset."""
    made = predictions(work)
    return {preset: label(pick(preset, made).compression) for preset in PRESETS}


@pytest.mark.parametrize(
    ("work", "figures", "seconds", "limit"),
    [
        (load(), NONE, 0.25, "processors"),
        (load(cores=2), NONE, 0.5, "processors"),
        (load(disk=1e9), NONE, 1.0, "disk"),
        (load(disk=1e9), MIDDLE, 1.0, "processors"),
        (load(fetch=20e-9), MIDDLE, 5.0, "source"),
        (load(cores=64), HEAVY, 7.75, "processors"),
    ],
)
def test_elapsed_is_that_of_the_scarcest(
    work: Workload, figures: CodecFigures, seconds: float, limit: str
) -> None:
    """CPU over cores in use, a worker's slowest stage, or bytes over the disk: the largest."""
    found = predict(work, figures)
    assert found.predicted_seconds == pytest.approx(seconds)
    assert found.limit == limit
    assert found.predicted_bytes == round(GB / figures.ratio)


def test_smallest_has_a_bound() -> None:
    """A codec that makes the run more than four times as long is not taken."""
    assert picks(load())["smallest"] == "zstd:1"
    assert picks(load(disk=1e8))["smallest"] == "zstd:9"


def test_balanced_trades_time_for_bytes_at_par() -> None:
    """More time must save a larger share of the bytes, and half as much again is the most."""
    assert picks(load(disk=9e8)) == {"fastest": "lz4:1", "balanced": "zstd:1", "smallest": "zstd:1"}


def test_equals_are_decided_by_their_order() -> None:
    """Figures that differ by less than the noise give the lighter codec, every time."""
    twin = CodecFigures(
        compression=Compression(codec="zstd", level=3),
        sample_bytes=GB,
        ratio=1.601,
        cpu_seconds_per_byte=2.99e-9,
    )
    work = load(disk=6e8)
    made = (predict(work, MIDDLE), predict(work, twin))
    for preset in PRESETS:
        assert pick(preset, made) is made[0]


@pytest.mark.parametrize("preset", PRESETS)
def test_without_figures_there_is_a_choice_all_the_same(preset: str) -> None:
    """An empty table has nothing to measure: the codec is a fixed one that each format can use."""
    choice = choose(preset, ())  # type: ignore[arg-type]
    assert choice.compression == UNMEASURED[choice.preset]
    assert "no rows" in choice.reason
    assert all(choice.compression in each for each in CANDIDATES.values())
