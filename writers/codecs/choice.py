"""Which codec a preset takes: pure rules over measured figures, without a clock.

The elapsed time of a run is predicted as the largest of what it takes the processors to do all the
work, the slowest stage of a worker to do its part, and the disk to take the bytes:

    max(CPU seconds / cores in use, stage seconds / parallelism, output bytes / disk bytes a second)

The stages of a worker overlap: it fetches in one thread, encodes in a second, and compresses and
writes in a third. Parquet compresses while it encodes, in one thread.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from writers.model import Compression

Preset = Literal["fastest", "balanced", "smallest"]
PRESETS: tuple[Preset, ...] = ("fastest", "balanced", "smallest")

BALANCED_TIME = 1.5
SMALLEST_TIME = 4.0
"""Times the least predicted elapsed time: a codec that makes the run still longer is only taken
where it is named."""

SAME_TIME = 1.03
SAME_SIZE = 1.005
"""Closer than this is the same: the lighter codec wins, so that noise seldom decides."""

_TEXT = (
    Compression(),
    Compression(codec="lz4", level=1),
    Compression(codec="zstd", level=1),
    Compression(codec="zstd", level=3),
    Compression(codec="zstd", level=9),
)
_PARQUET = (
    Compression(),
    Compression(codec="snappy"),
    *_TEXT[1:],
)
CANDIDATES = {"csv": _TEXT, "parquet": _PARQUET}
"""What a preset chooses among, lightest first. Not gzip, which zstd beats in time and size at once:
it is for readers that know nothing else, who say so by its name."""

UNMEASURED: dict[Preset, Compression] = {
    "fastest": Compression(),
    "balanced": Compression(codec="zstd", level=1),
    "smallest": Compression(codec="zstd", level=9),
}
"""What is taken where there are no rows to measure."""


class CodecFigures(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a codec did to a sample."""

    compression: Compression
    sample_bytes: int
    """Uncompressed bytes it was measured on."""
    ratio: float
    """Uncompressed size over compressed size."""
    cpu_seconds_per_byte: float
    """Of compressing, per uncompressed byte; 0 without a codec."""
    library: str | None = None


class Workload(Struct, frozen=True, kw_only=True):
    """What is to be done besides compressing, and with what."""

    bytes: int
    """Uncompressed bytes of the whole output."""
    fetch_seconds_per_byte: float
    """Wall seconds of one worker's fetch."""
    fetch_cpu_per_byte: float
    encode_cpu_per_byte: float
    """0 where the source renders the text."""
    one_thread: bool
    """Encoding and compressing share a thread (Parquet)."""
    parallelism: int
    cores: int
    disk_bytes_per_second: float | None
    """None where it could not be measured, or nothing is written to a disk."""


class Prediction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run with a codec would take."""

    figures: CodecFigures
    output_bytes: int
    cpu_seconds: float
    elapsed_seconds: float
    limit: str
    """What takes longest: processors, source, encoder, codec or disk."""

    def to_json(self) -> dict[str, Any]:
        """Return the prediction and its figures as JSON-able values."""
        figures = self.figures
        rate = 1 / figures.cpu_seconds_per_byte if figures.cpu_seconds_per_byte else None
        return {
            "codec": figures.compression.codec,
            "level": figures.compression.level,
            "library": figures.library,
            "sample_bytes": figures.sample_bytes,
            "ratio": round(figures.ratio, 4),
            "bytes_per_cpu_second": None if rate is None else round(rate),
            "compress_cpu_seconds_per_gb": round(figures.cpu_seconds_per_byte * 1e9, 3),
            "predicted_cpu_seconds": round(self.cpu_seconds, 3),
            "predicted_bytes": self.output_bytes,
            "predicted_seconds": round(self.elapsed_seconds, 3),
            "limit": self.limit,
        }


class Choice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a preset chose and why."""

    preset: Preset
    compression: Compression
    reason: str
    predictions: tuple[Prediction, ...] = ()
    """Of every candidate that was measured, lightest first; empty where nothing was."""
    disk_bytes_per_second: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the choice as the manifest holds it."""
        disk = self.disk_bytes_per_second
        return {
            "preset": self.preset,
            "codec": self.compression.codec,
            "level": self.compression.level,
            "reason": self.reason,
            "disk_bytes_per_second": None if disk is None else round(disk),
            "candidates": [each.to_json() for each in self.predictions],
        }


def predict(load: Workload, figures: CodecFigures) -> Prediction:
    """Return what the whole output would take with this codec."""
    fetch = load.fetch_seconds_per_byte * load.bytes
    encode = load.encode_cpu_per_byte * load.bytes
    compress = figures.cpu_seconds_per_byte * load.bytes
    cpu = load.fetch_cpu_per_byte * load.bytes + encode + compress
    size = round(load.bytes / figures.ratio)
    workers = max(1, load.parallelism)
    parts = {
        "processors": cpu / max(1, min(workers, load.cores)),
        "source": fetch / workers,
        "encoder": (encode + compress if load.one_thread else encode) / workers,
        "codec": compress / workers,
        "disk": size / load.disk_bytes_per_second if load.disk_bytes_per_second else 0.0,
    }
    limit = max(parts, key=lambda name: parts[name])
    return Prediction(
        figures=figures,
        output_bytes=size,
        cpu_seconds=cpu,
        elapsed_seconds=parts[limit],
        limit=limit,
    )


def pick(preset: Preset, predictions: tuple[Prediction, ...]) -> Prediction:
    """Return what a preset takes; of equals the one that comes first.

    Args:
        preset: fastest is the least predicted elapsed time; smallest is the least output within
            `SMALLEST_TIME` of that; balanced the least product of time and output within
            `BALANCED_TIME`, so that a longer run must save a larger share of the bytes.
        predictions: At least one, lightest first.
    """
    least = min(each.elapsed_seconds for each in predictions)
    if preset == "fastest":
        return next(each for each in predictions if each.elapsed_seconds <= least * SAME_TIME)
    if preset == "smallest":
        quick = [each for each in predictions if each.elapsed_seconds <= least * SMALLEST_TIME]
        best = min(each.output_bytes for each in quick)
        return next(each for each in quick if each.output_bytes <= best * SAME_SIZE)
    quick = [each for each in predictions if each.elapsed_seconds <= least * BALANCED_TIME]
    cost = min(_cost(each) for each in quick)
    return next(each for each in quick if _cost(each) <= cost * SAME_TIME)


def _cost(prediction: Prediction) -> float:
    return prediction.elapsed_seconds * prediction.output_bytes


def choose(preset: Preset, predictions: tuple[Prediction, ...]) -> Choice:
    """Return what a preset takes and why; without predictions what it takes unmeasured."""
    if not predictions:
        return Choice(
            preset=preset,
            compression=UNMEASURED[preset],
            reason="the sample has no rows to measure",
        )
    chosen = pick(preset, predictions)
    others = ", ".join(
        f"{label(each.figures.compression)} x{each.figures.ratio:.2f} {each.elapsed_seconds:.3g} s"
        for each in predictions
    )
    return Choice(
        preset=preset,
        compression=chosen.figures.compression,
        reason=f"{_RULES[preset]}, limited by the {chosen.limit} ({others})",
        predictions=predictions,
    )


_RULES: dict[Preset, str] = {
    "fastest": "the least predicted elapsed time",
    "balanced": "the least predicted time times output bytes",
    "smallest": f"the smallest output within {SMALLEST_TIME:g} times the least predicted time",
}


def label(compression: Compression) -> str:
    """Return a codec as the command line takes it: `zstd:3`, `none`."""
    level = "" if compression.level is None else f":{compression.level}"
    return f"{compression.codec}{level}"
