"""The chart of a sweep: speed by parallelism, the knee, and the ceilings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from unloader.report import figures
from unloader.report.charts.chart import LINE_COLOURS, Chart, Frame, Spec, colours, quantity
from unloader.report.sweep_report import CeilingLine, LevelLine, SweepPage

MOST_ABOVE = 3.0
"""A ceiling higher than so many times the fastest point is told and not drawn: the curve beside it
would be flat."""

_STATES = ("sustained", "valid", "not sustained", "not valid", "outlier", "failed")
_STATE_COLOURS = (
    *("var(--blue)", "var(--blue)", "var(--amber)"),
    *("var(--red)", "var(--pink)", "var(--grey)"),
)
_STATE_SHAPES = ("circle", "circle", "diamond", "cross", "triangle-up", "square")
"""A state is told by its form, too, not by its colour alone."""

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
