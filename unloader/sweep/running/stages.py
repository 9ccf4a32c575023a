"""What finished units tell of their stages: their CPU, their queues, and what they waited for.

A stage that waits is not yet what limits: behind it, the next one waits for something outside, has
work of its own, or is ready and gets no CPU. Each wait is divided among these as the stage that is
waited for has spent its time.
"""

from __future__ import annotations

from collections.abc import Sequence

from unloader.model import Stages, UnitResult
from unloader.sweep.model import Queueing, StageCosts, Waits
from writers import cpu_delay


def costs_of(results: Sequence[UnitResult]) -> StageCosts:
    """Return the CPU seconds of the stages per million rows."""
    loads = [each.stages.load for each in results if each.stages.load is not None]
    rows = sum(each.rows for each in results)
    if not rows or len(loads) != len(results):
        none = dict.fromkeys(("fetch", "encode", "compress", "write", "rest", "total"))
        return StageCosts(**none)
    # A text format knows its size before it is compressed; Parquet compresses as it encodes.
    is_stage = all(each.stages.uncompressed_bytes is not None for each in results)
    fetch = sum(each.fetch_cpu_s for each in loads)
    encode = sum(each.encode_cpu_s for each in loads)
    compress = sum(each.stages.compress_cpu_s for each in results)
    write = sum(each.write_cpu_s for each in loads)
    total = sum(each.process_cpu_s for each in loads)
    million = rows / 1e6
    return StageCosts(
        fetch=fetch / million,
        encode=encode / million,
        compress=compress / million if is_stage else None,
        write=write / million,
        rest=max(0.0, total - fetch - encode - compress - write) / million,
        total=total / million,
    )


def row_bytes_of(results: Sequence[UnitResult]) -> float | None:
    """Return the bytes of a row before compression; None where a unit does not tell them."""
    sizes = [each.stages.uncompressed_bytes for each in results]
    rows = sum(each.rows for each in results)
    known = [size for size in sizes if size]
    return sum(known) / rows if rows and len(known) == len(results) else None


def queueing_of(results: Sequence[UnitResult]) -> Queueing:
    """Return how long stages waited for each other."""
    loads = [each.stages.load for each in results if each.stages.load is not None]
    seconds = sum(each.seconds for each in results)
    if not seconds or len(loads) != len(results):
        return Queueing(for_source=None, for_encoder=None, for_writer=None, longest_seconds=None)
    return Queueing(
        for_source=min(1.0, sum(each.starved_s for each in loads) / seconds),
        for_encoder=min(1.0, sum(each.fetch_blocked_s for each in loads) / seconds),
        for_writer=min(1.0, sum(each.encode_blocked_s for each in loads) / seconds),
        longest_seconds=max(each.longest_blocked_s for each in loads),
    )


def waits_of(results: Sequence[UnitResult]) -> Waits:
    """Return the shares of the workers' time that passed in waiting, by what it was for."""
    seconds = sum(each.seconds for each in results)
    if not seconds or any(each.stages.load is None for each in results):
        return Waits(source=None, output=None, cpu=None)
    found = [_waits(each.stages) for each in results]
    source, output, cpu = (sum(column) / seconds for column in zip(*found, strict=True))
    return Waits(
        source=min(1.0, source),
        output=min(1.0, output),
        cpu=min(1.0, cpu) if cpu_delay.is_known() else None,
    )


def _waits(stages: Stages) -> tuple[float, float, float]:
    """Return the seconds that one unit waited for the source, for its output, and for a CPU."""
    load = stages.load
    assert load is not None
    known = load.fetch_cpu_s + load.encode_cpu_s + stages.compress_cpu_s + load.write_cpu_s
    # Threads of a driver work for the fetch.
    fetching = load.fetch_cpu_s + max(0.0, load.process_cpu_s - known)
    source, for_fetch = _divided(load.starved_s, stages.fetch_s, fetching, load.fetch_delay_s)
    # Without a compressing thread none is blocked, and writing alone is waited for.
    compressing = stages.compress_s + load.compress_blocked_s
    by_writing = load.compress_blocked_s / compressing if compressing else 1.0
    blocked = load.encode_blocked_s
    output, for_write = _divided(
        blocked * by_writing + load.closing_s,
        stages.write_s,
        load.write_cpu_s,
        load.write_delay_s,
    )
    _, for_compress = _divided(
        blocked * (1 - by_writing),
        stages.compress_s,
        stages.compress_cpu_s,
        load.compress_delay_s,
    )
    return source, output, for_fetch + for_write + for_compress + load.encode_delay_s


def _divided(waited: float, wall: float, busy: float, delayed: float) -> tuple[float, float]:
    """Divide a wait for a stage: what was outside of it, and what was for want of a CPU.

    Args:
        waited: Seconds.
        wall: Of the stage.
        busy: CPU seconds of the same.
        delayed: Seconds in which it was ready and had no CPU.
    """
    outside = max(0.0, wall - busy - delayed)
    whole = outside + busy + delayed
    return (waited * outside / whole, waited * delayed / whole) if whole else (0.0, 0.0)
