"""The rules of the presets, on figures made up for them: no clock, no codec."""

from __future__ import annotations

import pytest
from msgspec import to_builtins

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


def test_a_slow_disk_makes_a_light_codec_the_fastest() -> None:
    """Where the disk is the limit, none is slower than a codec that keeps up with it."""
    assert picks(load(disk=1e9))["fastest"] == "lz4:1"
    assert picks(load(disk=5e7))["fastest"] == "zstd:9"
    assert picks(load())["fastest"] == "none"


def test_where_the_source_is_the_limit_compression_costs_nothing() -> None:
    """balanced takes the smallest output then, and fastest the lightest codec."""
    found = picks(load(fetch=40e-9))
    assert found == {"fastest": "none", "balanced": "zstd:9", "smallest": "zstd:9"}


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


def test_parquet_compresses_in_the_encoding_thread() -> None:
    """One worker's encoding and compressing add up, and do not overlap."""
    work = Workload(
        fetch_seconds_per_byte=0.0, fetch_cpu_per_byte=0.0, encode_cpu_per_byte=3e-9,
        one_thread=True, parallelism=1, cores=8, disk_bytes_per_second=None,
    )  # fmt: skip
    assert predict(work, MIDDLE).predicted_seconds == pytest.approx(6.0)


def test_a_choice_says_what_it_rests_on() -> None:
    """The manifest gets the rule, the limit and every candidate with its figures."""
    choice = choose("balanced", predictions(load(disk=9e8)))
    assert "lz4:1 ratio 1.20, 0.926 s" in choice.reason
    document = to_builtins(choice)
    assert (document["codec"], document["level"]) == ("zstd", 1)
    assert [each["codec"] for each in document["candidates"]] == ["none", "lz4", "zstd", "zstd"]
    assert document["candidates"][2]["bytes_per_cpu_second"] == 333_333_333


@pytest.mark.parametrize("preset", PRESETS)
def test_without_figures_there_is_a_choice_all_the_same(preset: str) -> None:
    """An empty table has nothing to measure: the codec is a fixed one that each format can use."""
    choice = choose(preset, ())  # type: ignore[arg-type]
    assert choice.compression == UNMEASURED[choice.preset]
    assert "no rows" in choice.reason
    assert all(choice.compression in each for each in CANDIDATES.values())
