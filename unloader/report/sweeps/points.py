"""The points of a sweep: what each cost, and the timeline of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unloader.manifest.model import UnitRecord
from unloader.report.model import Bar
from unloader.report.sweep_model import LoadLine, PointLine
from unloader.report.sweeps.values import as_map, as_maps, as_number, as_text, digits
from unloader.report.timeline import bars_of

Document = Mapping[str, Any]
"""Of a sweep, or a part of one, as it was written."""


def point_line(each: Document) -> PointLine:
    """Return what a point cost."""
    runs = as_maps(each.get("measurements"))
    median = median_of(runs)
    costs, machine = as_map(median.get("costs")), as_map(median.get("machine"))
    who = as_map(machine.get("processes"))
    return PointLine(
        label=label_of(each),
        parallelism=int(as_number(each.get("parallelism")) or 0),
        state=as_text(each.get("state")),
        problem=as_text(each.get("problem")),
        runs=len(runs),
        seconds=as_number(median.get("seconds")),
        rows_per_second=as_number(each.get("rows_per_second")),
        bytes_per_second=as_number(median.get("bytes_per_second")),
        spread=as_number(each.get("spread")),
        **{
            name: as_number(costs.get(name))
            for name in ("fetch", "encode", "compress", "write", "rest", "total")
        },
        workers=as_number(who.get("workers")),
        parent=as_number(who.get("parent")),
        database=as_number(who.get("database")),
        others=as_number(who.get("rest")),
        idle=as_number(as_map(machine.get("cpu")).get("idle")),
        queued_s=as_number(as_map(median.get("queueing")).get("longest_seconds")),
    )


def label_of(point: Document) -> str:
    """Return the settings of a point as options of a command line."""
    settings = as_map(point.get("settings"))
    return " ".join(f"--{name} {value}" for name, value in settings.items())


def median_of(runs: list[Document]) -> Document:
    """Return the measurement with the median speed, of two the slower."""
    ordered = sorted(runs, key=lambda run: as_number(run.get("rows_per_second")) or 0.0)
    return ordered[(len(ordered) - 1) // 2] if ordered else {}


def shown_point(points: list[Document], wanted: int | None) -> Document | None:
    """Return the point whose timeline is shown; None without a measured one.

    Args:
        points: All.
        wanted: The recommended parallelism; the fastest point of it, or else of all.
    """
    measured = [point for point in points if point.get("measurements")]
    same = [point for point in measured if point.get("parallelism") == wanted]
    return max(
        same or measured,
        key=lambda point: as_number(point.get("rows_per_second")) or 0.0,
        default=None,
    )


def timeline_of(point: Document | None) -> tuple[tuple[Bar, ...], int]:
    """Return the bars of a point's median measurement, and the most units that one stands for."""
    timeline = as_maps(median_of(as_maps((point or {}).get("measurements"))).get("timeline"))
    units = [
        UnitRecord(
            id=as_text(each.get("unit")),
            rows=int(as_number(each.get("rows")) or 0),
            seconds=as_number(each.get("seconds")) or 0.0,
            worker=int(as_number(each.get("worker")) or 0),
            started_s=digits(as_number(each.get("began_seconds"))) or 0.0,
            files=(),
        )
        for each in timeline
    ]
    return bars_of(units, ())


def loads_of(point: Document | None) -> Iterator[LoadLine]:
    """Yield the load of the nodes during a point's median measurement."""
    for moment in as_maps(median_of(as_maps((point or {}).get("measurements"))).get("moments")):
        at = as_number(moment.get("at_seconds"))
        for node in as_maps(moment.get("nodes")):
            share = as_number(node.get("busy"))
            if at is not None and share is not None:
                yield LoadLine(
                    at_s=round(at, 3), node=as_text(node.get("node")), share=round(share, 4)
                )


def row_bytes(points: list[Document]) -> float | None:
    """Return the bytes that one row has in the files; None where that is not known."""
    for point in points:
        median = median_of(as_maps(point.get("measurements")))
        rows, size = as_number(median.get("rows")), as_number(median.get("bytes"))
        if rows and size:
            return size / rows
    return None
