"""The points of a sweep for their analysis, and as CSV, a line for each measurement."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from unloader.sweep.model import PARALLELISM, Measurement, PointReport, SweepDocument
from unloader.tuning.points import FOR_SIZE, Load, Point, points_text


def curves(
    measured: Iterable[PointReport],
) -> list[tuple[dict[str, str], list[PointReport]]]:
    """Return the points that differ in parallelism alone, with what they have in common."""
    found: list[tuple[dict[str, str], list[PointReport]]] = []
    for point in measured:
        common = {name: text for name, text in point.settings.items() if name != PARALLELISM}
        for settings, points in found:
            if settings == common:
                points.append(point)
                break
        else:
            found.append((common, [point]))
    return found


def measured_points(points: Iterable[PointReport]) -> tuple[Point, ...]:
    """Return each measurement as the analysis takes it."""
    return tuple(_point(point.parallelism, each) for point in points for each in point.measurements)


def points_csv(report: SweepDocument) -> str:
    """Return the measurements as CSV that `unloader.tuning.points` reads.

    Further columns are those that `unloader size` reads, and what the sweep has varied beside
    parallelism.
    """
    remarks = (
        f"{report.subject} to {report.destination}",
        f"caches {report.caches}",
    )
    text = points_text(measured_points(report.points), remarks)
    names = list(dict.fromkeys(name for point in report.points for name in point.settings))
    names = [name for name in names if name != PARALLELISM]
    cells = [
        [*_for_size(each, report.cores), *(point.settings.get(name, "") for name in names)]
        for point in report.points
        for each in point.measurements
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    more = iter([[*FOR_SIZE, *names], *cells])
    for line in text.splitlines():
        if line.startswith("#"):
            out.write(line + "\n")
        else:
            writer.writerow([*next(csv.reader([line])), *next(more)])
    return out.getvalue()


def _for_size(each: Measurement, cores: int | None) -> list[str]:
    """Return the cells of the columns `FOR_SIZE`; what is not known is empty."""
    known = (each.row_bytes, cores, each.cpu_seconds)
    return ["" if value is None else f"{value:.9g}" for value in known]


def _point(parallelism: int, each: Measurement) -> Point:
    machine, waits = each.machine, each.waits
    nodes = machine.nodes if machine is not None else ()
    disks = machine.disks if machine is not None else ()
    links = machine.networks if machine is not None else ()
    return Point(
        parallelism=parallelism,
        seconds=each.seconds,
        bytes=each.bytes or None,
        rows=each.rows,
        load=Load(
            cpu=None if machine is None else machine.used,
            node=max((node.busy for node in nodes), default=None),
            disk=max((d.busy for d in disks if d.of_output and d.busy is not None), default=None),
            output=waits.output,
            network=max((one.busy for one in links if one.busy is not None), default=None),
            source=waits.source,
            delay=waits.cpu,
            throttled=None if machine is None else machine.throttled,
            database=None if machine is None else machine.processes.database,
            queued=each.queueing.longest_seconds,
        ),
    )
