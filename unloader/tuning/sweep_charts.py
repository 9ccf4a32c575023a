"""The charts of the page of a sweep: speed by parallelism, CPU by stage, timeline and load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from unloader.tuning.report_charts import (
    LINE_COLOURS,
    STAGE_COLOURS,
    STAGES,
    Chart,
    Spec,
    bytes_per_second,
    colours,
    load_chart,
    number,
    quantity,
    rows_per_second,
    stacked,
    timeline_chart,
    workers,
)
from unloader.tuning.sweep_report import PointLine, SweepPage

MOST_STACKS = 40

MOST_ABOVE = 3.0
"""A ceiling higher than this multiple of the fastest point is a text and not drawn: the curve would
be flat."""

_STATES = {
    "sustained": ("var(--blue)", "circle"),
    "valid": ("var(--blue)", "circle"),
    "not sustained": ("var(--amber)", "diamond"),
    "not valid": ("var(--red)", "cross"),
    "outlier": ("var(--pink)", "triangle-up"),
    "failed": ("var(--grey)", "square"),
}
"""A state has its own form, too, not only a colour."""

_UNITS: dict[str, tuple[str, Callable[[float], str]]] = {
    "bytes": ("MB/s", bytes_per_second),
    "rows": ("rows/s", rows_per_second),
    "runs": ("runs an hour", lambda value: f"{number(value)} runs an hour"),
}

_WORKERS = {"field": "workers", "type": "quantitative"}
_RATE = {"field": "rate", "type": "quantitative"}


def sweep_charts(page: SweepPage) -> Iterator[Chart]:
    """Yield the charts that there is something to show of."""
    if any(level.rate is not None for level in page.levels):
        yield _throughput(page)
    if any(point.median is not None and point.median.costs.total for point in page.points):
        yield _costs(page.points)
    if page.bars:
        note = f" It is the median run of {page.shown_point}."
        yield timeline_chart(page.bars, page.units_per_bar, note)
    loads = [(at.at_seconds, str(each.node), each.busy) for at in page.moments for each in at.nodes]
    if loads:
        yield load_chart(loads)


def _costs(points: Sequence[PointLine]) -> Chart:
    shown = points[:MOST_STACKS]
    # The names of the settings are on the axis, their values beside the bars.
    settings = [
        [each.strip().split(" ", 1) for each in point.label.split("--") if each.strip()]
        for point in shown
    ]
    several = len({point.parallelism for point in shown}) < len(shown)
    labels = [
        ", ".join(each[-1] for each in named) if several else f"{point.parallelism}"
        for point, named in zip(shown, settings, strict=True)
    ]
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
        if point.median is not None
        for place, part in enumerate(parts)
        if (value := getattr(point.median.costs, part)) is not None
    ]
    found = {each["part"] for each in values}
    y = {
        "field": "point",
        "type": "ordinal",
        "title": ", ".join(each[0] for each in settings[0]) if several else "workers",
        "sort": labels,
    }
    x = quantity("value", "CPU seconds per million rows", ",~f")
    names = {part: colour for part, colour in parts.items() if part in found}
    height = max(60, min(len(shown) * 24, 700))
    more = f" The first {MOST_STACKS} of {len(points)} points are shown."
    return Chart(
        name="costs",
        title="CPU of the workers, by stage",
        summary="CPU seconds of the workers for a million rows; rest is CPU time outside these "
        "stages, such as threads of a driver." + (more if len(points) > MOST_STACKS else ""),
        spec=lambda narrow: stacked(
            values,
            {**y, "axis": {"grid": False, "labelLimit": 110 if narrow else 320}},
            x,
            "part",
            names,
            height,
        )(narrow),
    )


def _throughput(page: SweepPage) -> Chart:
    """Return the chart of the speed by parallelism, with its knee and ceilings."""
    title, told = _UNITS[page.unit]
    levels: list[Spec] = [
        {
            "workers": level.parallelism,
            "rate": level.rate,
            "low": level.rate if level.lowest_rate is None else level.lowest_rate,
            "high": level.rate if level.highest_rate is None else level.highest_rate,
            "state": level.state,
            "series": level.series,
            "says": f"{workers(level.parallelism)}{' ' * bool(level.series)}{level.series}, "
            f"{told(level.rate)}, {level.state}{': ' * bool(level.reasons)}{level.reasons}",
        }
        for level in page.levels
        if level.rate is not None
    ]
    series = sorted({level.series for level in page.levels})
    most = max(each["rate"] for each in levels)
    near = [
        {"rate": each.rate, "text": f"{each.what}: {told(each.rate)}"}
        for each in page.ceilings
        if each.rate <= most * MOST_ABOVE
    ]
    far = [
        f"Too far above the chart to be drawn: {each.what}, {told(each.rate)}."
        for each in page.ceilings
        if each.rate > most * MOST_ABOVE
    ]

    def spec(narrow: bool) -> Spec:
        x = quantity("workers", "workers", ",~f", scale={"domainMin": 0})
        x["axis"]["tickMinStep"] = 1
        y = quantity("rate", title, "~s", scale={"domainMin": 0})
        if page.unit == "bytes":
            y["axis"] = {"labelExpr": "format(datum.value / 1e6, ',~f')"}
        layers = [*_knee(page), *(_ceilings(near, narrow) if near else ())]
        layers += [*_levels(levels, series, narrow), *_ring(page, levels)]
        return {"height": 320, "encoding": {"x": x, "y": y}, "layer": layers}

    return Chart(
        name="throughput",
        title="Speed by parallelism",
        summary=" ".join((*_summary(page), *far)),
        spec=spec,
    )


def _summary(page: SweepPage) -> Iterator[str]:
    low, high = (
        "no bound" if bound is None else number(bound)
        for bound in (page.knee_interval.low, page.knee_interval.high)
    )
    if page.knee is not None:
        yield f"The knee is at {workers(page.knee)} ({low} to {high})."
    else:
        yield "The points do not reach a knee."
    if page.recommended is not None:
        yield f"Recommended: {workers(page.recommended)}."
    bad = sum(level.state in ("not valid", "outlier", "failed") for level in page.levels)
    if bad:
        yield f"{bad} of {len(page.levels)} points do not count; the table shows the reason."


def _knee(page: SweepPage) -> Iterator[Spec]:
    if page.knee is None:
        return
    most = max(level.parallelism for level in page.levels)
    low, high = page.knee_interval.low or 0, min(page.knee_interval.high or most, most)
    full = {"y": {"value": 0}, "y2": {"value": "height"}}
    yield {
        "data": {"values": [{"low": low, "high": high}]},
        "mark": {"type": "rect", "color": "var(--grey)", "opacity": 0.15, "aria": False},
        "encoding": {
            "x": {"field": "low", "type": "quantitative"},
            "x2": {"field": "high"},
            **full,
        },
    }
    data = {"values": [{"workers": page.knee, "text": f"knee {number(page.knee)}"}]}
    yield {
        "data": data,
        "mark": {"type": "rule", "color": "var(--muted)", "strokeDash": [2, 3]},
        "encoding": {"x": _WORKERS, **full},
    }
    yield {
        "data": data,
        "mark": {
            **{"type": "text", "align": "left", "dx": 5, "dy": 4, "fontSize": 12},
            **{"color": "var(--muted)", "baseline": "top"},
        },
        "encoding": {"x": _WORKERS, "y": {"value": 0}, "text": {"field": "text"}},
    }


def _ceilings(near: list[Spec], narrow: bool) -> Iterator[Spec]:
    yield {
        "data": {"values": near},
        "mark": {"type": "rule", "color": "var(--red)", "strokeDash": [6, 4], "strokeWidth": 1.5},
        "encoding": {
            "x": {"value": 0},
            "x2": {"value": "width"},
            "y": _RATE,
            "description": {"field": "text"},
        },
    }
    yield {
        "data": {"values": near},
        "mark": {
            **{"type": "text", "align": "left", "baseline": "bottom", "dx": 4, "dy": -2},
            **{"color": "var(--red)", "fontSize": 11 if narrow else 12},
        },
        "encoding": {"x": {"value": 0}, "y": _RATE, "text": {"field": "text"}},
    }


def _levels(levels: list[Spec], series: list[str], narrow: bool) -> Iterator[Spec]:
    """Yield the lines of the settings, the spread of each point, and the points."""
    states = [state for state in _STATES if state in {each["state"] for each in levels}]
    colour = colours("state", {state: _STATES[state][0] for state in states}, narrow)
    if len(series) > 1:
        line: Spec = {"detail": {"field": "series"}}
        if len(series) <= len(LINE_COLOURS):
            line = {"color": {"field": "series", "type": "nominal"}}
            colour = colours("series", dict(zip(series, LINE_COLOURS, strict=False)), narrow)
        yield {
            "data": {"values": levels},
            "mark": {"type": "line", "color": "var(--line)", "opacity": 0.6, "aria": False},
            "encoding": line,
        }
    yield {
        "data": {"values": [each for each in levels if each["low"] != each["high"]]},
        "mark": {"type": "rule", "color": "var(--muted)", "strokeWidth": 1.5, "aria": False},
        "encoding": {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}},
    }
    yield {
        "data": {"values": levels},
        "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
        "encoding": {
            "color": colour,
            "shape": {
                "field": "state",
                "type": "nominal",
                "sort": states,
                "scale": {"domain": states, "range": [_STATES[state][1] for state in states]},
                "legend": {
                    # Two legends side by side are wider than a narrow page.
                    **{"orient": "bottom" if len(series) > 1 else "top", "title": None},
                    "columns": 2 if narrow else 0,
                    **{"symbolFillColor": "var(--muted)", "symbolStrokeColor": "var(--muted)"},
                },
            },
            "description": {"field": "says"},
        },
    }


def _ring(page: SweepPage, levels: list[dict[str, Any]]) -> Iterator[Spec]:
    """Yield a ring around the recommended level."""
    values = [
        {**each, "says": f"recommended: {each['says']}"}
        for each in levels
        if each["workers"] == page.recommended and not each["series"]
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
