"""What `unloader sweep` finds: from a file of points, and from a live sweep."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict, replace

from unloader.tuning.analysis import (
    Analysis,
    KneeInterval,
    LevelChoice,
    Limit,
    Limits,
    MeasuredLevel,
    Outlier,
    Spread,
    Work,
)
from unloader.tuning.ceilings import (
    Ceilings,
    DiskCeiling,
    SourceCeiling,
    SourceLevel,
    WriteSettings,
)
from unloader.tuning.ceilings import Machine as CeilingsMachine
from unloader.tuning.machine_load import CpuTimes, MachineLoad, Moment, NodeLoad, ProcessShares
from unloader.tuning.points import Load
from unloader.tuning.sweep_document import (
    Curve,
    Measurement,
    PointReport,
    Queueing,
    StageCosts,
    SweepDocument,
    SweepOptions,
    UnitTime,
    Waits,
    WholeTable,
)

PUBLISHED = {
    **{32: 3497, 28: 4740, 24: 4463, 20: 5260, 16: 6298},
    **{12: 7158, 8: 6805, 4: 12841, 3: 18380, 2: 23760},
}
"""Parallelism to seconds of a published sweep, whose points at 28 and 12 are out of line."""

_OUT_OF_LINE = {
    28: "slower than 24 workers by 6 %: more workers never take longer by that much here",
    12: "slower than 8 workers by 5 %",
}


def replay(name: str = "") -> Analysis:
    """Return the analysis of the published points.

    Args:
        name: Ends every text of it.
    """
    return Analysis(
        knee=8,
        knee_interval=KneeInterval(low=7, high=9, confidence=0.95, note=f"of seven points {name}"),
        outliers=tuple(_OUT_OF_LINE),
        outlier_reasons=tuple(
            Outlier(parallelism=level, reason=reason) for level, reason in _OUT_OF_LINE.items()
        ),
        recommended=32,
        sustained=LevelChoice(parallelism=24, seconds=4463, text=f"CPU below 75 % {name}"),
        production=LevelChoice(parallelism=24, seconds=5356, text="with a discount of 20 %"),
        doubts=(),
        limits=Limits(
            below_knee=Limit(resources=("source",), text=f"the source {name}"),
            above_knee=Limit(resources=("cpu",), text="second threads of the cores"),
        ),
        spread=Spread(share=0.03, measured=False),
        work=Work(unit="bytes", amount=1.65e12),
        levels=tuple(_level(level, name) for level in sorted(PUBLISHED)),
        notices=(f"two levels are left out {name}",),
    )


def _level(level: int, name: str) -> MeasuredLevel:
    seconds, outlier = PUBLISHED[level], level in _OUT_OF_LINE
    cpu = round(0.028 * level, 3)
    reasons = [f"CPU {cpu:.0%}, above the limit of 75%"] if cpu > 0.75 else []
    reasons += [f"outlier: {_OUT_OF_LINE[level]} {name}"] if outlier else []
    if level == 3:
        reasons.append(f"a stage waited 2.5 s for its consumer (limit 1 s) {name}")
    return MeasuredLevel(
        parallelism=level,
        seconds=seconds,
        repeats=1,
        fastest_seconds=seconds * 0.98,
        slowest_seconds=seconds * 1.03,
        work_per_second=1.65e12 / seconds,
        valid=level != 3,
        sustained=cpu <= 0.75 and level != 3,
        outlier=outlier,
        reasons=tuple(reasons),
        load=Load(cpu=cpu),
    )


def live(name: str = "") -> SweepDocument:
    """Return a live sweep of two codecs over four parallelisms, the last point having failed."""
    points = [_point(level, codec, name) for codec in ("none", "zstd") for level in (1, 2, 4, 8)]
    points[-1] = PointReport(
        settings=points[-1].settings,
        parallelism=8,
        measurements=(),
        state="failed",
        problem=f"no room {name}",
        rows_per_second=None,
        spread=None,
    )
    whole = WholeTable(parallelism=4, rows=9_000_000_000, seconds=9200)
    curves = []
    for codec in ("none", "zstd"):
        levels = [
            replace(_level(4, name), parallelism=level, sustained=level < 4)
            for level in (1, 2, 4, 8)[: 4 if codec == "none" else 3]
        ]
        of_curve: dict[str, Any] = {"levels": tuple(levels), "recommended": 4}
        curves.append(
            Curve(
                **{**_fields(replay(name)), **of_curve},
                settings={"compression": codec},
                rows_per_second=1.0,
                whole_table=whole,
            )
        )
    return SweepDocument(
        **{**_fields(curves[0]), "notices": (f"one point failed {name}",)},
        recommended_options={"parallelism": "4", "compression": f"none{name}"},
        whole_table=whole,
        curves=tuple(curves),
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


def analysed(name: str = "") -> SweepDocument:
    """Return a live sweep of one axis."""
    found, analysis, rows = live(name), replay(name), 50e6
    points = tuple(
        replace(point, settings={"parallelism": str(point.parallelism)})
        for point in found.points[:4]
    )
    levels = []
    for point in points:
        assert point.rows_per_second is not None
        levels.append(
            replace(
                _level(4, name),
                parallelism=point.parallelism,
                repeats=3,
                sustained=True,
                reasons=(),
                seconds=rows / point.rows_per_second,
                fastest_seconds=rows / (point.rows_per_second * 1.04),
                slowest_seconds=rows / (point.rows_per_second * 0.97),
            )
        )
    analysis = replace(
        analysis,
        work=Work(unit="rows", amount=rows),
        levels=tuple(levels),
        recommended=8,
        knee=5,
        knee_interval=KneeInterval(low=3, high=None, confidence=0.95, note=f"a note {name}"),
    )
    curve = Curve(**_fields(analysis), settings={}, rows_per_second=1.0, whole_table=None)
    return replace(found, **_fields(analysis), points=points, curves=(curve,))


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
            levels=(
                SourceLevel(
                    parallelism=8,
                    rows=10**6,
                    bytes=10**8,
                    seconds=1.0,
                    rows_per_second=rows,
                    bytes_per_second=rows * 100,
                    cpu_seconds=2.0,
                    network_bytes_per_second=None,
                ),
            ),
        ),
    )


def _fields(analysis: Analysis) -> dict[str, Any]:
    names = Analysis.__struct_fields__
    return {name: value for name, value in asdict(analysis).items() if name in names}


def _point(level: int, codec: str, name: str) -> PointReport:
    speed = 300_000 * level / (1 + 0.08 * (level - 1)) * (0.9 if codec == "zstd" else 1)
    runs = [
        _measurement(number, level, speed * (0.98 + 0.02 * number), name) for number in range(3)
    ]
    return PointReport(
        settings={"parallelism": str(level), "compression": codec},
        parallelism=level,
        measurements=tuple(runs),
        state="steady",
        rows_per_second=speed,
        spread=0.04,
    )


def _measurement(number: int, level: int, speed: float, name: str) -> Measurement:
    rows = 5_000_000
    seconds = rows / speed
    each = seconds / 6
    return Measurement(
        number=number + 1,
        seconds=seconds,
        whole_seconds=seconds + 1,
        rows=rows,
        bytes=rows * 137,
        complete=True,
        units=6 * level,
        failed_attempts=0,
        costs=StageCosts(
            **{"fetch": 1.1, "encode": 0.6, "compress": 0.25 if level % 2 else None},
            **{"write": 0.15, "rest": 0.3, "total": 2.4},
        ),
        queueing=Queueing(for_source=0.5, for_encoder=0.1, for_writer=0.05, longest_seconds=0.02),
        waits=Waits(source=0.1, output=0.1, cpu=None),
        machine=MachineLoad(
            cpu=CpuTimes(user=0.5, system=0.1, iowait=0.05, idle=0.35, stolen=0.0),
            used=0.6,
            throttled=None,
            processes=ProcessShares(workers=0.4, parent=0.01, database=None, rest=0.24),
            disks=(),
            networks=(),
            nodes=(),
            peak_memory_bytes=None,
        ),
        peak_worker_bytes=None,
        rows_per_second=speed,
        bytes_per_second=speed * 137,
        moments=tuple(
            Moment(
                at_seconds=at * seconds / 10,
                busy=None,
                iowait=None,
                nodes=tuple(
                    NodeLoad(node=node, busy=0.1 * level / (node + 1)) for node in range(2)
                ),
                memory_bytes=None,
            )
            for at in range(11)
        ),
        timeline=tuple(
            UnitTime(
                worker=worker,
                unit=f"{worker + unit * level + 1:04d}{name}",
                began_seconds=unit * each,
                seconds=each * 0.98,
                rows=rows // (6 * level),
                bytes=rows // (6 * level) * 137,
            )
            for unit in range(6)
            for worker in range(level)
        ),
    )
