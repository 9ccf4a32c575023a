"""The analysis of each curve of a sweep, and what it means for the whole table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unloader.sweep.model import Curve, PointReport, WholeTable
from unloader.sweep.points import curves, measured_points
from unloader.tuning.analysis import Analysis, Rules, analyse


def curves_of(
    points: Iterable[PointReport], rules: Rules, whole_rows: int | None
) -> tuple[Curve, ...]:
    """Return the analysis of each curve, the fastest first.

    Args:
        points: Of the sweep; those without a measurement do not count.
        rules: Which points are valid.
        whole_rows: Of all that the options select; None if that is unknown.
    """
    found = []
    for settings, members in curves(point for point in points if point.measurements):
        analysis = analyse(measured_points(members), rules)
        curve = Curve(
            **{name: getattr(analysis, name) for name in Analysis.__struct_fields__},
            settings=settings,
            rows_per_second=max(
                point.rows_per_second or 0.0
                for point in members
                if analysis.recommended in (None, point.parallelism)
            ),
            whole_table=_whole(analysis, members, whole_rows),
        )
        found.append(curve)
    return tuple(sorted(found, key=lambda each: -each.rows_per_second))


def _whole(
    analysis: Analysis, points: Sequence[PointReport], whole_rows: int | None
) -> WholeTable | None:
    """Return the seconds of all rows at the recommended parallelism, from those of the sample."""
    level = analysis.level(analysis.recommended)
    if level is None or not whole_rows:
        return None
    measured = [each for point in points for each in point.measurements]
    # The analysis brings all points to the work of the one that did most.
    name = "bytes" if analysis.work.unit == "bytes" else "rows"
    most = max(measured, key=lambda each: float(getattr(each, name)))
    return WholeTable(
        parallelism=level.parallelism,
        rows=whole_rows,
        seconds=level.seconds * whole_rows / most.rows,
    )
