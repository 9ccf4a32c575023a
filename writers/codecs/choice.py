"""Which codec a preset takes: pure rules over measured figures, without a clock.

The elapsed time of a run is predicted as the largest of three times. These are the processors' time
for all the work, the slowest stage's time for a worker's part, and the disk's time for the bytes:

    max(CPU seconds / cores in use, stage seconds / parallelism, output bytes / disk bytes a second)

The stages of a worker overlap: it fetches in one thread, encodes in a second, and compresses and
writes in a third. Parquet compresses while it encodes, in one thread.
"""

from __future__ import annotations

from msgspec import Struct

from writers.model import Candidate, Choice, Compression, Preset

PRESETS: tuple[Preset, ...] = ("fastest", "balanced", "smallest")

GB = 10**9

BALANCED_TIME = 1.5
SMALLEST_TIME = 4.0
"""Times the least elapsed time: a codec that makes the run still longer is only taken
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
_PARQUET = (Compression(), Compression(codec="snappy"), *_TEXT[1:])
CANDIDATES = {"csv": _TEXT, "parquet": _PARQUET}
"""What a preset chooses among, lightest first. Not gzip: zstd beats it in time and size. Users
whose readers know only gzip ask for it by name."""

UNMEASURED: dict[Preset, Compression] = {
    "fastest": Compression(),
    "balanced": Compression(codec="zstd", level=1),
    "smallest": Compression(codec="zstd", level=9),
}
"""The choice without rows to measure."""


class CodecFigures(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    compression: Compression
    sample_bytes: int
    ratio: float
    """Uncompressed size over compressed size."""
    cpu_seconds_per_byte: float
    """Of compressing, per uncompressed byte; 0 without a codec."""
    library: str | None = None


class Workload(Struct, frozen=True, kw_only=True):
    """The work besides compressing, and its resources."""

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


def predict(load: Workload, figures: CodecFigures) -> Candidate:
    fetch = load.fetch_seconds_per_byte * GB
    encode = load.encode_cpu_per_byte * GB
    compress = figures.cpu_seconds_per_byte * GB
    cpu = load.fetch_cpu_per_byte * GB + encode + compress
    size = round(GB / figures.ratio)
    workers = max(1, load.parallelism)
    parts = {
        "processors": cpu / max(1, min(workers, load.cores)),
        "source": fetch / workers,
        "encoder": (encode + compress if load.one_thread else encode) / workers,
        "codec": compress / workers,
        "disk": size / load.disk_bytes_per_second if load.disk_bytes_per_second else 0.0,
    }
    limit = max(parts, key=lambda name: parts[name])
    rate = 1 / figures.cpu_seconds_per_byte if figures.cpu_seconds_per_byte else None
    return Candidate(
        codec=figures.compression.codec,
        level=figures.compression.level,
        library=figures.library,
        sample_bytes=figures.sample_bytes,
        ratio=round(figures.ratio, 4),
        bytes_per_cpu_second=None if rate is None else round(rate),
        compress_cpu_seconds_per_gb=round(compress, 3),
        predicted_cpu_seconds=round(cpu, 6),
        predicted_bytes=size,
        predicted_seconds=round(parts[limit], 6),
        limit=limit,
    )


def pick(preset: Preset, candidates: tuple[Candidate, ...]) -> Candidate:
    """Return what a preset takes; of equals the one that comes first.

    Args:
        preset: fastest is the least elapsed time; smallest is the least output within
            `SMALLEST_TIME` of that; balanced the least product of time and output within
            `BALANCED_TIME`, so that a longer run must save a larger share of the bytes.
        candidates: At least one, lightest first.
    """
    least = min(each.predicted_seconds for each in candidates)
    if preset == "fastest":
        return next(each for each in candidates if each.predicted_seconds <= least * SAME_TIME)
    if preset == "smallest":
        quick = [each for each in candidates if each.predicted_seconds <= least * SMALLEST_TIME]
        best = min(each.predicted_bytes for each in quick)
        return next(each for each in quick if each.predicted_bytes <= best * SAME_SIZE)
    quick = [each for each in candidates if each.predicted_seconds <= least * BALANCED_TIME]
    costs = [each.predicted_seconds * each.predicted_bytes for each in quick]
    return quick[next(at for at, cost in enumerate(costs) if cost <= min(costs) * SAME_TIME)]


def choose(
    preset: Preset,
    candidates: tuple[Candidate, ...],
    *,
    disk: float | None = None,
    unmeasured: str = "the sample has no rows to measure",
) -> Choice:
    """Return what a preset takes and why; without candidates its codec of `UNMEASURED`."""
    if candidates:
        chosen = pick(preset, candidates)
        codec = chosen.compression
        others = "; ".join(
            f"{each.compression.label} ratio {each.ratio:.2f}, {each.predicted_seconds:.3g} s"
            for each in candidates
        )
        reason = (
            f"{_RULES[preset]}; its limit is the {chosen.limit}; measured for 10^9 bytes: {others}"
        )
    else:
        codec, reason = UNMEASURED[preset], unmeasured
    return Choice(
        preset=preset,
        codec=codec.codec,
        level=codec.level,
        reason=reason,
        disk_bytes_per_second=None if disk is None else round(disk),
        candidates=candidates,
    )


_RULES: dict[Preset, str] = {
    "fastest": "the least elapsed time",
    "balanced": "the least time times output bytes",
    "smallest": f"the smallest output within {SMALLEST_TIME:g} times the least time",
}
