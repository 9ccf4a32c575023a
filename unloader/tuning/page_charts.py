"""Which charts the page of a run and of a sweep have, and the charts of one of them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from unloader.tuning import report_figures as figures
from unloader.tuning.report_charts import (
    LINE_COLOURS,
    STAGE_COLOURS,
    STAGES,
    Chart,
    Frame,
    Spec,
    colours,
    load_chart,
    quantity,
    rows_height,
    speed_chart,
    timeline_chart,
    worker_axis,
)
from unloader.tuning.run_report import RunReport
from unloader.tuning.sweep_report import CeilingLine, LevelLine, PointLine, SweepPage


def run_charts(report: RunReport) -> Iterator[Chart]:
    """Yield the charts that there is something to show of."""
    if report.bars:
        yield timeline_chart(report.bars, report.units_per_bar, _idle(report))
    if len(report.samples) > 1:
        yield speed_chart(report)
    if any(sample.cpu_by_node for sample in report.samples):
        yield load_chart(
            [
                (sample.at_s, node, share)
                for sample in report.samples
                for node, share in sample.cpu_by_node.items()
            ]
        )
    if report.workers:
        yield _worker_stages(report)


def _idle(report: RunReport) -> str:
    spread = report.spread
    if spread.first_worker_idle_s is None or spread.last_worker_idle_s is None:
        return ""
    return (
        " The first worker had no more work after "
        f"{figures.seconds(spread.first_worker_idle_s)}, the last worker after "
        f"{figures.seconds(spread.last_worker_idle_s)}."
    )


def _worker_stages(report: RunReport) -> Chart:
    values = [
        {
            "worker": each.worker,
            "stage": stage,
            "s": seconds,
            "place": place,
            "says": f"worker {each.worker}, {stage}: {figures.seconds(seconds)}",
        }
        for each in report.workers
        for place, stage in enumerate(STAGES)
        for seconds in (getattr(each.stages, f"{stage}_s"),)
    ]
    workers = len(report.workers)

    def spec(frame: Frame) -> Spec:
        return {
            "data": {"values": values},
            "height": rows_height(workers),
            "mark": {"type": "bar", "stroke": "var(--card)", "strokeWidth": 1},
            "encoding": {
                "y": worker_axis(workers),
                "x": quantity("s", "seconds", ",~f", stack="zero"),
                "order": {"field": "place", "type": "quantitative"},
                "color": colours("stage", STAGES, STAGE_COLOURS, frame),
                "description": {"field": "says"},
            },
        }

    return Chart(
        name="worker-stages",
        title="Stages, by worker",
        summary="Wall seconds of each stage over all units of a worker. Stages overlap, so their "
        "sum may be longer than the worker's time. The longest stage limits the worker.",
        spec=spec,
    )


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
    shown = points[:MOST_STACKS]
    several = len({point.parallelism for point in shown}) < len(shown)
    labels = [_values(point.label) if several else f"{point.parallelism}" for point in shown]
    parts = dict(zip((*STAGES, "rest"), (*STAGE_COLOURS, "var(--grey)"), strict=True))
    values = [
        {
            "point": label,
            "part": part,
            "place": place,
            "value": value,
            "says": f"{point.label or label}, {part}: {value:.3g} CPU s per million rows",
        }
        for label, point in zip(labels, shown, strict=True)
        for place, part in enumerate(parts)
        if (value := getattr(point, part)) is not None
    ]
    found = {each["part"] for each in values}
    known = {part: colour for part, colour in parts.items() if part in found}

    def spec(frame: Frame) -> Spec:
        return {
            "data": {"values": values},
            "height": max(60, min(len(shown) * 24, 700)),
            "mark": {"type": "bar", "stroke": "var(--card)", "strokeWidth": 1},
            "encoding": {
                "y": {
                    "field": "point",
                    "type": "ordinal",
                    "title": ", ".join(_names(shown[0].label)) if several else "workers",
                    "sort": labels,
                    "axis": {"grid": False, "labelLimit": frame.pick(320, 110)},
                },
                "x": quantity("value", "CPU seconds per million rows", ",~f", stack="zero"),
                "order": {"field": "place", "type": "quantitative"},
                "color": colours("part", list(known), list(known.values()), frame),
                "description": {"field": "says"},
            },
        }

    more = f" The first {MOST_STACKS} of {len(points)} points are shown."
    return Chart(
        name="costs",
        title="CPU of the workers, by stage",
        summary="CPU seconds of the workers for a million rows; rest is CPU time outside these "
        "stages, such as threads of a driver." + (more if len(points) > MOST_STACKS else ""),
        spec=spec,
    )


def _names(label: str) -> Iterator[str]:
    return (each.split(" ", 1)[0] for each in label.split("--") if each.strip())


def _values(label: str) -> str:
    """Return the values of the settings of a label; the axis has their names."""
    settings = (each.strip().split(" ", 1) for each in label.split("--") if each.strip())
    return ", ".join(each[-1] for each in settings)


MOST_ABOVE = 3.0
"""A ceiling higher than this multiple of the fastest point is a text and not drawn: the curve would
be flat."""

_STATES = ("sustained", "valid", "not sustained", "not valid", "outlier", "failed")
_STATE_COLOURS = (
    *("var(--blue)", "var(--blue)", "var(--amber)"),
    *("var(--red)", "var(--pink)", "var(--grey)"),
)
_STATE_SHAPES = ("circle", "circle", "diamond", "cross", "triangle-up", "square")
"""A state has its own form, too, not only a colour."""

_UNITS: dict[str, tuple[str, Callable[[float], str]]] = {
    "bytes": ("MB/s", figures.bytes_per_second),
    "rows": ("rows/s", figures.rows_per_second),
    "runs": ("runs an hour", lambda value: f"{figures.number(value)} runs an hour"),
}


def throughput_chart(page: SweepPage) -> Chart:
    """Return the chart of the speed by parallelism, with its knee and ceilings."""
    title, told = _UNITS[page.unit]
    levels = [_level(level, told) for level in page.levels if level.rate is not None]
    found = {level.state for level in page.levels if level.rate is not None}
    states = [state for state in _STATES if state in found]
    series = sorted({level.series for level in page.levels})

    def spec(frame: Frame) -> Spec:
        x = quantity("workers", "workers", ",~f", scale={"domainMin": 0})
        x["axis"]["tickMinStep"] = 1
        y = quantity("rate", title, "~s", scale={"domainMin": 0})
        if page.unit == "bytes":
            y["axis"] = {"labelExpr": "format(datum.value / 1e6, ',~f')"}
        layers = [*_knee(page), *_ceilings(page, told, frame)]
        if len(series) > 1:
            layers.append(_joined(levels, series))
        layers += [_bars_of_spread(levels), _marks(levels, states, series, frame)]
        layers += _chosen(page, told)
        return {"height": 320, "encoding": {"x": x, "y": y}, "layer": layers}

    return Chart(name="throughput", title="Speed by parallelism", summary=_summary(page), spec=spec)


def _summary(page: SweepPage) -> str:
    parts = []
    knee = page.knee
    if knee.parallelism is not None:
        low, high = _bound(knee.low), _bound(knee.high)
        parts.append(f"The knee is at {figures.workers(knee.parallelism)} ({low} to {high}).")
    else:
        parts.append("The points do not reach a knee.")
    for choice in page.choices:
        if choice.what == "recommended":
            parts.append(f"Recommended: {figures.workers(choice.parallelism)}.")
    bad = sum(level.state in ("not valid", "outlier", "failed") for level in page.levels)
    if bad:
        parts.append(
            f"{bad} of {len(page.levels)} points do not count; the table shows the reason."
        )
    near, told = _near(page), _UNITS[page.unit][1]
    parts += [
        f"Too far above the chart to be drawn: {each.what}, {told(each.rate)}."
        for each in page.ceilings
        if each not in near
    ]
    return " ".join(parts) or "Each point is the median of its measurements."


def _bound(value: float | None) -> str:
    return "no bound" if value is None else figures.number(value)


def _level(level: LevelLine, told: Callable[[float], str]) -> dict[str, Any]:
    assert level.rate is not None
    why = f": {level.reasons}" if level.reasons else ""
    which = f" {level.series}" if level.series else ""
    return {
        "workers": level.parallelism,
        "rate": level.rate,
        "low": level.rate if level.lowest_rate is None else level.lowest_rate,
        "high": level.rate if level.highest_rate is None else level.highest_rate,
        "state": level.state,
        "series": level.series,
        "says": f"{figures.workers(level.parallelism)}{which}, {told(level.rate)}, "
        f"{level.state}{why}",
    }


def _knee(page: SweepPage) -> Iterator[Spec]:
    knee = page.knee
    if knee.parallelism is None:
        return
    most = max(level.parallelism for level in page.levels)
    low, high = knee.low or 0, most if knee.high is None else min(knee.high, most)
    yield {
        "data": {"values": [{"low": low, "high": high}]},
        "mark": {"type": "rect", "color": "var(--grey)", "opacity": 0.15, "aria": False},
        "encoding": {
            "x": {"field": "low", "type": "quantitative"},
            "x2": {"field": "high"},
            "y": {"value": 0},
            "y2": {"value": "height"},
        },
    }
    text = f"knee {figures.number(knee.parallelism)}"
    values = [{"workers": knee.parallelism, "text": text, "says": text}]
    x = {"field": "workers", "type": "quantitative"}
    yield {
        "data": {"values": values},
        "mark": {"type": "rule", "color": "var(--muted)", "strokeDash": [2, 3]},
        "encoding": {"x": x, "y": {"value": 0}, "y2": {"value": "height"}},
    }
    yield {
        "data": {"values": values},
        "mark": {
            **{"type": "text", "align": "left", "dx": 5, "dy": 4, "fontSize": 12},
            **{"color": "var(--muted)", "baseline": "top"},
        },
        "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "text"}},
    }


def _near(page: SweepPage) -> list[CeilingLine]:
    """Return the ceilings that have room in the chart."""
    most = max((level.rate for level in page.levels if level.rate is not None), default=0.0)
    return [each for each in page.ceilings if each.rate <= most * MOST_ABOVE]


def _ceilings(page: SweepPage, told: Callable[[float], str], frame: Frame) -> Iterator[Spec]:
    near = _near(page)
    if not near:
        return
    values = [{"rate": each.rate, "text": f"{each.what}: {told(each.rate)}"} for each in near]
    y = {"field": "rate", "type": "quantitative"}
    yield {
        "data": {"values": values},
        "mark": {"type": "rule", "color": "var(--red)", "strokeDash": [6, 4], "strokeWidth": 1.5},
        "encoding": {
            "x": {"value": 0},
            "x2": {"value": "width"},
            "y": y,
            "description": {"field": "text"},
        },
    }
    yield {
        "data": {"values": values},
        "mark": {
            **{"type": "text", "align": "left", "baseline": "bottom", "dx": 4, "dy": -2},
            **{"color": "var(--red)", "fontSize": frame.pick(12, 11)},
        },
        "encoding": {"x": {"value": 0}, "y": y, "text": {"field": "text"}},
    }


def _joined(levels: Sequence[dict[str, Any]], series: Sequence[str]) -> Spec:
    """Return a line for each setting, in the colour of its points where they have one."""
    told: Spec = {"detail": {"field": "series"}}
    if len(series) <= len(LINE_COLOURS):
        told = {"color": {"field": "series", "type": "nominal"}}
    return {
        "data": {"values": list(levels)},
        "mark": {"type": "line", "color": "var(--line)", "opacity": 0.6, "aria": False},
        "encoding": told,
    }


def _bars_of_spread(levels: Sequence[dict[str, Any]]) -> Spec:
    return {
        "data": {"values": [each for each in levels if each["low"] != each["high"]]},
        "mark": {"type": "rule", "color": "var(--muted)", "strokeWidth": 1.5, "aria": False},
        "encoding": {
            "y": {"field": "low", "type": "quantitative"},
            "y2": {"field": "high"},
        },
    }


def _marks(
    levels: Sequence[dict[str, Any]], states: Sequence[str], series: Sequence[str], frame: Frame
) -> Spec:
    chosen = [_STATE_COLOURS[_STATES.index(state)] for state in states]
    shapes = [_STATE_SHAPES[_STATES.index(state)] for state in states]
    colour = colours("state", states, chosen, frame)
    if 1 < len(series) <= len(LINE_COLOURS):
        colour = colours("series", series, LINE_COLOURS, frame)
    return {
        "data": {"values": list(levels)},
        "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
        "encoding": {
            "color": colour,
            "shape": {
                "field": "state",
                "type": "nominal",
                "sort": list(states),
                "scale": {"domain": list(states), "range": shapes},
                "legend": {
                    # Two legends side by side are wider than a narrow page.
                    **{"orient": "bottom" if len(series) > 1 else "top", "title": None},
                    "columns": frame.pick(0, 2),
                    **{"symbolFillColor": "var(--muted)", "symbolStrokeColor": "var(--muted)"},
                },
            },
            "description": {"field": "says"},
        },
    }


def _chosen(page: SweepPage, told: Callable[[float], str]) -> Iterator[Spec]:
    """Yield a ring around the recommended level."""
    wanted = {each.parallelism for each in page.choices if each.what == "recommended"}
    values = [
        {
            "workers": level.parallelism,
            "rate": level.rate,
            "says": f"recommended: {figures.workers(level.parallelism)}, {told(level.rate)}",
        }
        for level in page.levels
        if level.rate is not None and level.parallelism in wanted and not level.series
    ]
    if values:
        yield {
            "data": {"values": values},
            "mark": {
                **{"type": "point", "filled": False, "size": 320, "strokeWidth": 2},
                **{"color": "var(--ink)", "opacity": 1},
            },
            "encoding": {"description": {"field": "says"}},
        }
