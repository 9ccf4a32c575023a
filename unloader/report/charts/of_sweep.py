"""The charts of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from unloader.report import figures
from unloader.report.charts.chart import (
    LINE_COLOURS,
    STAGE_COLOURS,
    STAGES,
    Chart,
    Frame,
    Spec,
    colours,
    quantity,
)
from unloader.report.charts.over_time import load_chart, timeline_chart
from unloader.report.sweep_model import LevelLine, PointLine, SweepPage

MOST_STACKS = 40

_STATES = ("sustained", "not sustained", "not valid", "outlier", "failed")
_STATE_COLOURS = ("var(--blue)", "var(--amber)", "var(--red)", "var(--pink)", "var(--grey)")
_STATE_SHAPES = ("circle", "diamond", "cross", "triangle-up", "square")
"""A state is told by its form, too, not by its colour alone."""

_USERS = ("workers", "parent", "database", "others", "idle")
_USER_COLOURS = ("var(--blue)", "var(--teal)", "var(--amber)", "var(--violet)", "var(--grid)")

_UNITS: dict[str, tuple[str, Callable[[float], str]]] = {
    "bytes": ("MB/s", figures.bytes_per_second),
    "rows": ("rows/s", figures.rows_per_second),
    "runs": ("runs an hour", lambda value: f"{figures.number(value)} runs an hour"),
}


def sweep_charts(page: SweepPage) -> Iterator[Chart]:
    """Yield the charts that there is something to show of."""
    if any(level.rate is not None for level in page.levels):
        yield _throughput(page)
    if any(point.total is not None for point in page.points):
        yield _costs(page.points)
    if any(point.workers is not None for point in page.points):
        yield _users(page.points)
    if page.bars:
        yield timeline_chart(
            page.bars, page.units_per_bar, f" It is the median run of {page.shown_point}."
        )
    if page.loads:
        yield load_chart([(each.at_s, each.node, each.share) for each in page.loads])


def _throughput(page: SweepPage) -> Chart:
    title, told = _UNITS[page.unit]
    levels = [_level(level, told) for level in page.levels if level.rate is not None]
    found = {level.state for level in page.levels if level.rate is not None}
    states = [state for state in _STATES if state in found]
    series = sorted({level.series for level in page.levels})

    def spec(frame: Frame) -> Spec:
        x = quantity("workers", "workers", ",~f", scale={"domainMin": 0})
        y = quantity("rate", title, "~s", scale={"domainMin": 0})
        if page.unit == "bytes":
            y["axis"] = {"labelExpr": "format(datum.value / 1e6, ',~f')"}
        layers = [*_knee(page), *_band(page), *_fit(page), *_ceilings(page, told, frame)]
        if len(series) > 1:
            layers.append(_joined(levels, series))
        layers += [_bars_of_spread(levels), _marks(levels, states, series, frame)]
        layers += _chosen(page, told)
        return {"height": 320, "encoding": {"x": x, "y": y}, "layer": layers}

    return Chart(name="throughput", title="Speed by parallelism", summary=_summary(page), spec=spec)


def _summary(page: SweepPage) -> str:
    parts = []
    knee = page.knee
    if knee is not None and knee.parallelism is not None:
        low, high = _bound(knee.low), _bound(knee.high)
        parts.append(
            f"The knee is at {figures.number(knee.parallelism)} workers ({low} to {high})."
        )
    elif knee is not None:
        parts.append("The points do not reach a knee.")
    for choice in page.choices:
        if choice.what == "recommended":
            parts.append(f"Recommended: {choice.parallelism} workers.")
    if page.model:
        fits = "" if page.described else ", which does not describe all points"
        parts.append(f"The line is the fit of the law {page.model}{fits}; the band its interval.")
    bad = sum(level.state in ("not valid", "outlier", "failed") for level in page.levels)
    if bad:
        parts.append(f"{bad} of {len(page.levels)} points do not count; the table says why.")
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
        "says": f"{level.parallelism} workers{which}, {told(level.rate)}, {level.state}{why}",
    }


def _knee(page: SweepPage) -> Iterator[Spec]:
    knee = page.knee
    if knee is None or knee.parallelism is None:
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
            **{"type": "text", "align": "left", "dx": 5, "dy": -6, "fontSize": 12},
            **{"color": "var(--muted)", "baseline": "bottom"},
        },
        "encoding": {"x": x, "y": {"value": "height"}, "text": {"field": "text"}},
    }


def _band(page: SweepPage) -> Iterator[Spec]:
    most = max(level.parallelism for level in page.levels)
    values = [
        {"workers": each.parallelism, "low": each.lowest_rate, "high": each.highest_rate}
        for each in page.predictions
        if each.lowest_rate is not None
        and each.highest_rate is not None
        and each.parallelism <= most
    ]
    if len(values) > 1:
        yield {
            "data": {"values": values},
            "mark": {"type": "area", "color": "var(--green)", "opacity": 0.18, "aria": False},
            "encoding": {
                "y": {"field": "low", "type": "quantitative"},
                "y2": {"field": "high"},
            },
        }


def _fit(page: SweepPage) -> Iterator[Spec]:
    values = [
        {"workers": each.parallelism, "rate": each.rate}
        for each in page.curve
        if each.rate is not None
    ]
    if values:
        yield {
            "data": {"values": values},
            "mark": {"type": "line", "color": "var(--green)", "strokeWidth": 2, "aria": False},
        }


def _ceilings(page: SweepPage, told: Callable[[float], str], frame: Frame) -> Iterator[Spec]:
    if not page.ceilings:
        return
    values = [
        {"rate": each.rate, "text": f"{each.what}: {told(each.rate)}"} for each in page.ceilings
    ]
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
            "says": f"recommended: {level.parallelism} workers, {told(level.rate)}",
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


def _costs(points: Sequence[PointLine]) -> Chart:
    names = (*STAGES, "rest")
    return _stacked(
        name="costs",
        title="CPU of the workers, by stage",
        summary="CPU seconds of the workers for a million rows; rest is what is in no stage, such "
        "as threads of a driver." + _first_of(points),
        points=points,
        names=names,
        chosen=(*STAGE_COLOURS, "var(--grey)"),
        axis="CPU seconds per million rows",
        told=lambda value: f"{value:.3g} CPU s per million rows",
    )


def _users(points: Sequence[PointLine]) -> Chart:
    return _stacked(
        name="users",
        title="Who used the CPUs",
        summary="Shares of all CPUs of the machine. Where the database is on another machine, or "
        "its processes cannot be told, it has no share of its own." + _first_of(points),
        points=points,
        names=_USERS,
        chosen=_USER_COLOURS,
        axis="share of all CPUs",
        told=figures.share,
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
