"""Manifests of runs that never were: many units, hostile names, failed attempts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from msgspec import structs

from unloader.events import ParallelismChanged
from unloader.manifest.model import (
    Efficiency,
    EfficiencyPart,
    FailedAttemptRecord,
    Manifest,
    OptionsRecord,
    PlanRecord,
    SampleRecord,
    SourceRecord,
    TableRecord,
    TotalsRecord,
    VerifiedRecord,
)
from unloader.model import BoundSeat, FinishedUnit, Setting, Snapshot, Stages
from unloader.placement.evidence import NodeRecord, WorkerRecord
from writers.model import Compression, TextFormat, WrittenFile

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&amp;<svg/onload=alert(2)>{{7*7}}\u202e"
"""A name that breaks out of anything that does not escape it."""

ROWS, BYTES = 1_000, 137_000
"""Of one unit."""


def manifest(
    *, units: int = 24, workers: int = 4, nodes: int = 2, name: str = "", failed: int = 3
) -> Manifest:
    """Return the manifest of a run.

    Args:
        units: Each of them takes a little longer than the one before.
        workers: Units are dealt to them in turn.
        nodes: Workers are dealt to these.
        name: Of every partition, and of everything else that a user or a database names.
        failed: Attempts that failed, the first of them at the first units.
    """
    clocks = [2.0] * workers
    done = []
    for number in range(units):
        worker, seconds = number % workers, round(0.5 + number / units, 4)
        done.append(
            _unit(number, worker, worker % nodes, clocks[worker], seconds, name, number < failed)
        )
        clocks[worker] = round(clocks[worker] + seconds + 0.01, 4)
    end = max(clocks)
    return Manifest(
        run_id="20261101T010203Z-abcdef",
        unloader_version="0.1.0",
        status="complete",
        source=SourceRecord(kind="oracle", location="oracle://scott@db01/X", server_version="21"),
        table=TableRecord(schema="SCOTT", name=name or "ORDERS"),
        query=None,
        snapshot=Snapshot(kind="scn", value="4711", taken_at="2026-11-01T01:02:04+00:00"),
        columns=(),
        options=options(to=f"/extract/{name}"),
        plan=PlanRecord(digest="", units=units),
        settings=(
            Setting(name="parallelism", value=str(workers), origin="command line"),
            Setting(name="where", value=name or "ID > 5", origin=f"job file {name}"),
        ),
        units=tuple(done),
        failed_attempts=tuple(_failed(number, workers, name) for number in range(failed)),
        failed_attempts_left_out=0,
        samples=tuple(_sample(at, end, units, nodes) for at in range(21)),
        workers=tuple(_worker(each, each % nodes, done) for each in range(workers)),
        nodes=tuple(_node(each, workers, nodes, done) for each in range(nodes)),
        parallelism_steps=tuple(_steps(workers, end, name)),
        efficiency=_efficiency(name),
        warnings=(f"worker 1 was moved {name}",),
        not_measured=("numa_maps: permission denied",),
        totals=TotalsRecord(
            rows=units * ROWS,
            bytes=units * BYTES,
            files=units,
            seconds=round(end + 0.5, 3),
            cpu_seconds=12.25,
            compress_cpu_seconds=0.0,
            uncompressed_bytes=None,
            rows_per_second=round(units * ROWS / (end + 0.5)),
            bytes_per_second=round(units * BYTES / (end + 0.5)),
            lowest_parallelism=None,
            peak_worker_rss_bytes=181_000_000,
        ),
        verified=VerifiedRecord(level="count", source_rows=units * ROWS, result="ok"),
    )


def options(**own: Any) -> OptionsRecord:
    """Return options that are empty, 0, false or None, except the ones that are given."""
    empty = {
        each.name: None
        if type(None) in get_args(each.type)
        else (get_origin(each.type) or each.type)()
        for each in structs.fields(OptionsRecord)
        if each.required and each.name not in {"to", "format", "compression", "dialect"}
    }
    shape = {"format": "csv", "compression": Compression(), "dialect": TextFormat()}
    return OptionsRecord(**{**empty, **shape, "to": "/out", **own})


def _unit(
    number: int, worker: int, node: int, began: float, seconds: float, name: str, retried: bool
) -> FinishedUnit:
    unit = f"{number + 1:05d}"
    return FinishedUnit(
        unit=unit,
        partition=name or f"P{number + 1}",
        partitions=(name or f"P{number + 1}",),
        rows=ROWS,
        attempt=2 if retried else 1,
        cpu_seconds=0.25,
        peak_rss_bytes=181_000_000,
        seat=BoundSeat(node=node, cpus=(), memory_node=None, memory_policy=None),
        stages=Stages(
            fetch_s=round(seconds * 0.6, 4),
            encode_s=round(seconds * 0.3, 4),
            write_s=0.05,
            compress_s=0.0,
            compress_cpu_s=0.0,
            uncompressed_bytes=None,
        ),
        seconds=seconds,
        worker=worker,
        started_s=began,
        files=(WrittenFile(path=f"{unit}.csv", rows=ROWS, bytes=BYTES, checksum="xxh3:0"),),
    )


def _failed(number: int, workers: int, name: str) -> FailedAttemptRecord:
    return FailedAttemptRecord(
        unit=f"{number + 1:05d}",
        attempt=1,
        worker=number % workers,
        started_s=round(0.25 * number, 4),
        seconds=0.2,
        message=f"ORA-01555: snapshot too old {name}",
    )


def _steps(workers: int, end: float, name: str) -> Iterator[ParallelismChanged]:
    """Yield a begin with two workers, a trial of all of them, and a limit that ends."""
    found = (
        (0.3, 2, 0.0, "start", "begins with 2, to find the best number"),
        (end / 4, workers, 1520.5, "trial", f"to measure the speed of {workers} workers {name}"),
        (
            end / 2,
            1,
            1490.0,
            "limit",
            f"other programs have 9 active sessions (--max-db-load 9) {name}",
        ),
        (end * 0.6, workers, 760.25, "limit", "no limit applies any more"),
    )
    for seconds, number, rate, cause, reason in found:
        yield ParallelismChanged(
            **{"seconds": round(seconds, 1), "workers": number, "of": workers},
            **{"rows_per_second": rate, "cause": cause, "reason": reason},
        )


def _efficiency(name: str) -> Efficiency:
    disk = EfficiencyPart(
        **{"what": "disk", "unit": "bytes/s", "rate": 451.0e6, "ceiling": 496.9e6},
        **{"share": 0.9076, "basis": f"32 files at once in /disk1/{name} and /disk2"},
    )
    source = EfficiencyPart(
        **{"what": "source", "unit": "rows/s", "rate": 2.73e6, "ceiling": 4.4e6},
        **{"share": 0.6205, "basis": "32 workers that fetch and write nothing"},
    )
    return Efficiency(
        ceilings=f"ceilings{name}.json",
        taken_at="2026-10-31T12:00:00+00:00",
        parts=(disk, source),
        not_compared=(f"encoder: parquet was measured {name}",),
    )


def _sample(at: int, end: float, units: int, nodes: int) -> SampleRecord:
    return SampleRecord(
        at_s=round(end * at / 20, 3),
        rows=units * ROWS * at // 20,
        bytes=units * BYTES * at // 20,
        busy_workers=3,
        cpu_by_node={str(node): round(0.3 + 0.02 * at / (node + 1), 3) for node in range(nodes)}
        if at
        else None,
    )


def _worker(number: int, node: int, units: list[FinishedUnit]) -> WorkerRecord:
    mine = [unit for unit in units if unit.worker == number]
    return WorkerRecord(
        worker=number,
        seat=BoundSeat(node=node, cpus=(number,), memory_node=None, memory_policy=None),
        ran_on=(number,),
        local_share=None,
        memory_bytes_by_node=None,
        file_bytes_by_node=None,
        units=len(mine),
        rows=sum(unit.rows for unit in mine),
        bytes=len(mine) * BYTES,
        seconds=round(sum(unit.seconds for unit in mine), 4),
        restarts=0,
        note=None,
    )


def _node(number: int, workers: int, nodes: int, units: list[FinishedUnit]) -> NodeRecord:
    mine = [unit for unit in units if unit.seat.node == number]
    return NodeRecord(
        node=number,
        workers=len(range(number, workers, nodes)),
        rows=len(mine) * ROWS,
        bytes=len(mine) * BYTES,
        rows_per_second=len(mine) * 50,
        bytes_per_second=len(mine) * 5000,
        numastat=None,
    )
