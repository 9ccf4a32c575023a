"""What `unloader sweep` finds: from a file of points, and from a live sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from unloader.tuning.analysis import Analysis, Limit, Limits, Rules, analyse
from unloader.tuning.ceilings import (
    Ceilings,
    DiskCeiling,
    SourceCeiling,
    SourceLevel,
    WriteSettings,
)
from unloader.tuning.ceilings import Machine as CeilingsMachine
from unloader.tuning.machine_load import MeasuredLoad
from unloader.tuning.points import Load, Point
from unloader.tuning.sweep_document import (
    Measurement,
    PointReport,
    StageCosts,
    SweepDocument,
    SweepOptions,
    UnitTime,
    curves_of,
)

PUBLISHED = {
    **{32: 3497, 28: 4740, 24: 4463, 20: 5260, 16: 6298},
    **{12: 7158, 8: 6805, 4: 12841, 3: 18380, 2: 23760},
}
"""Parallelism to seconds of a published sweep, whose points at 28 and 12 are out of line."""

ROWS = 5_000_000
"""Of each measurement."""


def replay() -> Analysis:
    """Return the analysis of the published points; a stage waited at 3 workers."""
    points = [
        Point(
            parallelism=level,
            seconds=seconds,
            bytes=1.65e12,
            load=Load(cpu=0.028 * level, queued=2.5 if level == 3 else None),
        )
        for level, seconds in PUBLISHED.items()
    ]
    return analyse(points, Rules())


def live(name: str = "") -> SweepDocument:
    """Return a live sweep of two codecs over four parallelisms, the last point having failed.

    Args:
        name: Ends every text of it.
    """
    points = [_point(level, codec, name) for codec in ("none", "zstd") for level in (1, 2, 4, 8)]
    points[-1] = replace(
        points[-1],
        measurements=(),
        state="failed",
        problem=f"no room {name}",
        rows_per_second=None,
        spread=None,
    )
    return _document(points, name)


def analysed(name: str = "") -> SweepDocument:
    """Return a live sweep of one axis, as `live`."""
    points = [_point(level, "none", name) for level in (1, 2, 4, 8)]
    alone = [replace(p, settings={"parallelism": str(p.parallelism)}) for p in points]
    return _document(alone, name)


def _document(points: Sequence[PointReport], name: str) -> SweepDocument:
    curves = curves_of(points, Rules(), 9_000_000_000)
    best = curves[0]
    fields: dict[str, Any] = {each: getattr(best, each) for each in Analysis.__struct_fields__}
    limit = Limit(resources=("cpu",), text=f"the CPUs {name}")
    fields |= {
        "limits": Limits(below_knee=limit, above_knee=limit),
        "knee_interval": replace(best.knee_interval, note=f"a note {name}"),
        "levels": tuple(
            replace(level, reasons=(*level.reasons, f"a reason {name}")) for level in best.levels
        ),
        "notices": (f"one point failed {name}",),
    }
    return SweepDocument(
        **fields,
        recommended_options={"parallelism": str(best.recommended), **best.settings},
        whole_table=best.whole_table,
        curves=curves,
        source="oracle://scott@db01/SALES",
        subject=f"SCOTT.ORDERS{name}",
        destination="/extract/sweep",
        options=SweepOptions(repeats=3),
        sample=None,
        whole_rows=9_000_000_000,
        cores=None,
        caches=f"as the warm-up left them {name}",
        points=tuple(points),
        interrupted=False,
        order=(),
    )


def _point(level: int, codec: str, name: str) -> PointReport:
    speed = 300_000 * level / (1 + 0.08 * (level - 1)) * (0.9 if codec == "zstd" else 1)
    return PointReport(
        settings={"parallelism": str(level), "compression": codec},
        parallelism=level,
        measurements=tuple(
            _measurement(number, level, speed * (0.98 + 0.02 * number), name) for number in range(3)
        ),
        state="steady",
        rows_per_second=speed,
        spread=0.04,
    )


def _measurement(number: int, level: int, speed: float, name: str) -> Measurement:
    seconds = ROWS / speed
    each, busy = seconds / 6, {1: 0.3, 2: 0.6, 4: 0.9, 8: 0.95}[level]
    return Measurement(
        number=number + 1,
        seconds=seconds,
        whole_seconds=seconds + 1,
        rows=ROWS,
        bytes=ROWS * 137,
        complete=True,
        units=6 * level,
        failed_attempts=0,
        costs=StageCosts(
            **{"fetch": 1.1, "encode": 0.6, "compress": 0.25 if level % 2 else None},
            **{"write": 0.15, "rest": 0.3, "total": 2.4},
        ),
        load=MeasuredLoad(
            **{"cpu": busy, "source": 0.1, "output": 0.1, "queued": 0.02},
            **{"workers": busy, "parent": 0.01, "others": 0.0},
        ),
        peak_worker_bytes=None,
        rows_per_second=speed,
        bytes_per_second=speed * 137,
        timeline=tuple(
            UnitTime(
                worker=worker,
                unit=f"{worker + unit * level + 1:04d}{name}",
                began_seconds=unit * each,
                seconds=each * 0.98,
                rows=ROWS // (6 * level),
                bytes=ROWS // (6 * level) * 137,
            )
            for unit in range(6)
            for worker in range(level)
        ),
    )


def ceilings(disk: float = 4.1e8, rows: float = 1.9e6) -> Ceilings:
    """Return ceilings of a disk and a source."""
    return Ceilings(
        unloader_version="1",
        taken_at="2026-01-01T00:00:00+00:00",
        machine=CeilingsMachine(name="db01", cpus=16, cores=8, model=None),
        parallelism=8,
        writing=WriteSettings(
            overlap_buffer=4194304, overlap_buffers=4, checksum="xxh3", direct_io=False
        ),
        disks=(
            DiskCeiling(
                directories=("/extract",),
                measured_in=("/extract",),
                mounts=(None,),
                writers=1,
                rounds=3,
                bytes=10**9,
                bytes_per_second=disk,
                lowest=disk,
                highest=disk,
            ),
        ),
        source=SourceCeiling(
            kind="oracle",
            location="oracle://u@db01/S",
            subject="T",
            where=None,
            partitions=(),
            columns=3,
            route="arrow",
            levels=(source_level(8, rows),),
        ),
    )


def source_level(parallelism: int, rate: float) -> SourceLevel:
    """Return a level of a source that fetched a million rows of 100 bytes."""
    return SourceLevel(
        parallelism=parallelism,
        rows=1_000_000,
        bytes=100_000_000,
        seconds=1e6 / rate,
        rows_per_second=rate,
        bytes_per_second=rate * 100,
        cpu_seconds=2.0,
    )
