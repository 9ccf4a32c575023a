"""Measures codecs and disks on a sample: CPU time per codec, wall time per disk, all bounded.

Other processes of a busy machine disturb CPU time the least. The least of several repetitions is
taken. A codec that is too slow for its share of the time is measured on fewer frames, always on
one; where no time is left it is not measured at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from writers.codecs.choice import CodecFigures
from writers.codecs.compression import codec_library, open_compressor
from writers.model import Compression
from writers.registry import open_writer

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.codecs.compression import BytesLike
    from writers.model import OutputSpec

_REPETITIONS = 3
_ENOUGH_SECONDS = 0.1
"""A measurement that took this time is not repeated: a disturbance is small beside it."""


_DISK_STEP_BYTES = 8 * 1024 * 1024
_DISK_MOST_BYTES = 256 * 1024 * 1024


def measure_text(
    frames: Sequence[BytesLike], candidates: Sequence[Compression], seconds: float
) -> tuple[CodecFigures, ...]:
    """Return the figures of each codec on frames of encoded text as large as a run's, in this
    order.

    Quick candidates come first: the rest of the seconds is shared among the remaining ones. What
    does not fit in is left out of the result.
    """
    deadline = perf_counter() + seconds
    found = []
    for number, candidate in enumerate(candidates):
        left = deadline - perf_counter()
        if candidate.codec == "none":
            size = sum(len(frame) for frame in frames)
            found.append(_figures("csv", candidate, size, size, 0.0))
        elif left > 0:
            share = left / (len(candidates) - number)
            compressor = open_compressor(candidate)
            least: dict[int, float] = {}
            sizes: dict[int, int] = {}
            began_all = perf_counter()
            for _ in range(_REPETITIONS):
                for at in _spread(len(frames)):
                    began = thread_time()
                    sizes[at] = len(compressor(frames[at]))
                    used = thread_time() - began
                    least[at] = min(used, least.get(at, used))
                    if perf_counter() - began_all >= share:
                        break
                if perf_counter() - began_all >= min(share, _ENOUGH_SECONDS):
                    break
            before, cpu = sum(len(frames[at]) for at in sizes), sum(least.values())
            found.append(_figures("csv", candidate, before, sum(sizes.values()), cpu))
    return tuple(found)


def _spread(count: int) -> Iterator[int]:
    """Yield 0 to `count` - 1 such that the first few already lie all over the range."""
    step = 1
    while step < count:
        step *= 2
    seen: set[int] = set()
    while step:
        for number in range(0, count, step):
            if number not in seen:
                seen.add(number)
                yield number
        step //= 2


def measure_parquet(
    batches: Sequence[pa.RecordBatch],
    spec: OutputSpec,
    candidates: Sequence[Compression],
    seconds: float,
) -> tuple[tuple[CodecFigures, ...], float, int]:
    """Return the figures of each codec in files of rows, and CPU seconds and bytes without a codec.

    The first candidate must be "none": the others are held against it. What does not fit into the
    seconds is left out. The directory of the spec gets one file after the other, and keeps none.
    """
    deadline = perf_counter() + seconds
    plain_cpu, plain_bytes = _write(batches, replace(spec, compression=candidates[0]), deadline)
    found = [_figures("parquet", candidates[0], plain_bytes, plain_bytes, 0.0)]
    for candidate in candidates[1:]:
        if perf_counter() < deadline:
            cpu, size = _write(batches, replace(spec, compression=candidate), deadline)
            extra = max(0.0, cpu - plain_cpu)
            found.append(_figures("parquet", candidate, plain_bytes, size, extra))
    return tuple(found), plain_cpu, plain_bytes


def _write(
    batches: Sequence[pa.RecordBatch], spec: OutputSpec, deadline: float
) -> tuple[float, int]:
    """Write the rows up to three times; return the least CPU seconds and the bytes."""
    least = float("inf")
    size = 0
    for _ in range(_REPETITIONS):
        seconds, path = _write_file(batches, spec)
        size = path.stat().st_size
        path.unlink()
        least = min(least, seconds)
        if seconds >= _ENOUGH_SECONDS or perf_counter() >= deadline:
            break
    return least, size


def encode_sample(batches: Sequence[pa.RecordBatch], spec: OutputSpec) -> tuple[float, bytes]:
    """Return the CPU seconds of encoding to a file, which is removed, and the text."""
    seconds, path = _write_file(batches, replace(spec, compression=Compression()))
    text = path.read_bytes()
    path.unlink()
    return seconds, text


def _write_file(batches: Sequence[pa.RecordBatch], spec: OutputSpec) -> tuple[float, Path]:
    spec = replace(spec, file_size_bytes=0, direct_io=False, stream=None)
    began = process_time()
    writer = open_writer(spec, batches[0].schema, "sample")
    try:
        for batch in batches:
            writer.write(batch)
        (file,) = writer.close()
    except BaseException:
        writer.abort()
        raise
    return process_time() - began, Path(spec.directory, file.path)


def measure_disk(directory: str, seconds: float) -> float | None:
    """Return the bytes a second that a directory's disk takes and keeps, None if it takes none.

    Written in growing steps, each synced, to a file without a name, at most 256 MiB in all. No step
    begins that would likely end after the seconds.
    """
    # A file system that compresses gains nothing from these bytes, as from compressed output.
    block = os.urandom(1024 * 1024) * (_DISK_STEP_BYTES // (1024 * 1024))
    best, blocks, total = 0.0, 1, 0
    deadline = perf_counter() + seconds
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            while total + blocks * len(block) <= _DISK_MOST_BYTES:
                began = perf_counter()
                for _ in range(blocks):
                    file.write(block)
                os.fsync(file.fileno())
                took = max(perf_counter() - began, 1e-6)
                best = max(best, blocks * len(block) / took)
                total += blocks * len(block)
                blocks *= 2
                if perf_counter() + 2 * took > deadline:
                    break
    except OSError:
        return best or None
    return best or None


def _figures(
    format_name: str, compression: Compression, before: int, after: int, seconds: float
) -> CodecFigures:
    return CodecFigures(
        compression=compression,
        sample_bytes=before,
        ratio=before / max(1, after),
        cpu_seconds_per_byte=seconds / max(1, before),
        library=codec_library(format_name, compression),
    )
