"""The points of a sweep for its analysis, and as CSV, a line for each measurement."""

from __future__ import annotations

import csv
import io

from unloader.sweep.model import Measurement, SweepReport

HEADS = (
    *("parallelism", "seconds", "bytes", "rows"),
    *("cpu", "node", "disk", "source", "queued"),
)
"""As `unloader sweep --replay` reads them; shares are in percent."""


def points_csv(report: SweepReport) -> str:
    """Return the measurements of a sweep as CSV; what else it has varied is in further columns."""
    text = io.StringIO()
    text.write(f"# {report.subject} into {report.destination}\n# caches: {report.caches}\n")
    writer = csv.writer(text, lineterminator="\n")
    names = list(dict.fromkeys(name for point in report.points for name in point.settings))
    names = [name for name in names if name != "parallelism"]
    writer.writerow((*HEADS, *names))
    for point in report.points:
        for each in point.measurements:
            settings = [point.settings.get(name, "") for name in names]
            writer.writerow([str(point.parallelism), *_cells(each), *settings])
    return text.getvalue()


def cpu_of(each: Measurement) -> float | None:
    """Return the share of the CPUs that was busy."""
    return None if each.machine is None else each.machine.used


def node_of(each: Measurement) -> float | None:
    """Return how busy the busiest node was."""
    nodes = each.machine.nodes if each.machine is not None else ()
    return max((node.busy for node in nodes), default=None)


def disk_of(each: Measurement) -> float | None:
    """Return how busy the busiest disk of the output was."""
    disks = each.machine.disks if each.machine is not None else ()
    known = [disk.busy for disk in disks if disk.of_output and disk.busy is not None]
    return max(known, default=None)


def _cells(each: Measurement) -> list[str]:
    shares = (cpu_of(each), node_of(each), disk_of(each), each.queueing.for_source)
    queued = each.queueing.longest_seconds
    return [
        f"{each.seconds:.6g}",
        str(each.bytes),
        str(each.rows),
        *("" if share is None else f"{share * 100:.4g}%" for share in shares),
        "" if queued is None else f"{queued:.4g}",
    ]
