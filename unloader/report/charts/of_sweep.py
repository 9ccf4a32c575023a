"""The charts of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from unloader.report.charts.chart import (
    STAGE_COLOURS,
    STAGES,
    Chart,
    Frame,
    Spec,
    colours,
    quantity,
)
from unloader.report.charts.over_time import load_chart, timeline_chart
from unloader.report.charts.throughput import throughput_chart
from unloader.report.sweep_report import PointLine, SweepPage

MOST_STACKS = 40


def sweep_charts(page: SweepPage) -> Iterator[Chart]:
    """Yield the charts that there is something to show of."""
    if any(level.rate is not None for level in page.levels):
        yield throughput_chart(page)
    if any(point.total is not None for point in page.points):
        yield _costs(page.points)
    if page.bars:
        yield timeline_chart(
            page.bars, page.units_per_bar, f" It is the median run of {page.shown_point}."
        )
    if page.loads:
        yield load_chart([(each.at_s, each.node, each.share) for each in page.loads])


def _costs(points: Sequence[PointLine]) -> Chart:
    names = (*STAGES, "rest")
    return _stacked(
        name="costs",
        title="CPU of the workers, by stage",
        summary="CPU seconds of the workers for a million rows; rest is CPU time outside these "
        "stages, such as threads of a driver." + _first_of(points),
        points=points,
        names=names,
        chosen=(*STAGE_COLOURS, "var(--grey)"),
        axis="CPU seconds per million rows",
        told=lambda value: f"{value:.3g} CPU s per million rows",
    )


def _names(label: str) -> Iterator[str]:
    return (each.split(" ", 1)[0] for each in label.split("--") if each.strip())


def _values(label: str) -> str:
    """Return the values of a label's settings, whose names are told by the axis."""
    settings = (each.strip().split(" ", 1) for each in label.split("--") if each.strip())
    return ", ".join(each[-1] for each in settings)


def _first_of(points: Sequence[PointLine]) -> str:
    more = len(points) > MOST_STACKS
    return f" The first {MOST_STACKS} of {len(points)} points are shown." if more else ""


def _stacked(
    *,
    name: str,
    title: str,
    summary: str,
    points: Sequence[PointLine],
    names: Sequence[str],
    chosen: Sequence[str],
    axis: str,
    told: Callable[[float], str],
) -> Chart:
    shown = points[:MOST_STACKS]
    several = len({point.parallelism for point in shown}) < len(shown)
    labels = [_values(point.label) if several else f"{point.parallelism}" for point in shown]
    names_of_axis = ", ".join(_names(shown[0].label)) if several else "workers"
    values = [
        {
            "point": label,
            "part": part,
            "place": place,
            "value": value,
            "says": f"{point.label or label}, {part}: {told(value)}",
        }
        for label, point in zip(labels, shown, strict=True)
        for place, part in enumerate(names)
        if (value := getattr(point, part)) is not None
    ]
    found = {each["part"] for each in values}
    known = [(part, colour) for part, colour in zip(names, chosen, strict=True) if part in found]

    def spec(frame: Frame) -> Spec:
        form = "%" if axis.startswith("share") else ",~f"
        return {
            "data": {"values": values},
            "height": max(60, min(len(shown) * 24, 700)),
            "mark": {"type": "bar", "stroke": "var(--card)", "strokeWidth": 1},
            "encoding": {
                "y": {
                    "field": "point",
                    "type": "ordinal",
                    "title": names_of_axis,
                    "sort": labels,
                    "axis": {"grid": False, "labelLimit": frame.pick(320, 110)},
                },
                "x": quantity("value", axis, form, stack="zero"),
                "order": {"field": "place", "type": "quantitative"},
                "color": colours(
                    "part", [part for part, _ in known], [colour for _, colour in known], frame
                ),
                "description": {"field": "says"},
            },
        }

    return Chart(name=name, title=title, summary=summary, spec=spec)
