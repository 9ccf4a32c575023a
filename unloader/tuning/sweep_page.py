"""The page of a sweep: its figures, which the page also contains as JSON, and its charts.

It is made from the output of `unloader sweep --json`. Unknown figures are null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from unloader.nouns import bytes_per_second, rows_per_second
from unloader.tuning.analysis import Analysis, MeasuredLevel
from unloader.tuning.ceilings import Ceilings
from unloader.tuning.report_charts import (
    LINE_COLOURS,
    STAGE_COLOURS,
    STAGES,
    Chart,
    Spec,
    colours,
    layer,
    number,
    quantity,
    stacked,
    timeline_chart,
    workers,
)
from unloader.tuning.run_report import FORMAT_VERSION, Bar, bars_of
from unloader.tuning.sweep_document import (
    PARALLELISM,
    Measurement,
    PointReport,
    SweepDocument,
    label,
)

_HOUR = 3600.0

State = Literal["sustained", "valid", "not sustained", "not valid", "outlier", "failed"]
"""Of a level, by the rules; `valid` if it is unknown whether it can be sustained."""

Unit = Literal["bytes", "rows", "runs"]
"""What rates count: runs an hour where neither bytes nor rows are known."""

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


class LevelLine(Struct, frozen=True, kw_only=True):
    """All measurements at one parallelism, or of one point where settings vary, too."""

    parallelism: int
    series: str = ""
    """The other settings; empty where parallelism alone varies."""
    seconds: float | None
    rate: float | None
    """In the unit of the sweep, per second."""
    lowest_rate: float | None = None
    highest_rate: float | None = None
    repeats: int
    cpu: float | None
    state: State
    reasons: str
    """Why it is not valid, cannot be sustained or is an outlier."""


class CeilingLine(Struct, frozen=True, kw_only=True):
    """What a part of the way can do at most, in the unit of the sweep."""

    what: str
    rate: float


class PointLine(Struct, frozen=True, kw_only=True):
    """What one point cost."""

    label: str
    runs: int
    point: PointReport
    """Without its measurements."""
    median: Measurement | None
    """The median measurement, without its timeline."""


class SweepPage(Struct, frozen=True, kw_only=True):
    """Everything that the page of a sweep shows; the last fields are of a sweep that measured."""

    report: Literal["sweep"] = "sweep"
    format_version: Literal[2] = FORMAT_VERSION
    sweep: Analysis
    """Without its points."""
    unit: Unit
    levels: tuple[LevelLine, ...]
    ceilings: tuple[CeilingLine, ...]
    recommended_options: str = ""
    """As options of a command line; empty without any."""
    points: tuple[PointLine, ...] = ()
    shown_point: str = ""
    """The point whose timeline and load are shown: the recommended one, or the fastest."""
    bars: tuple[Bar, ...] = ()
    units_per_bar: int = 1


def sweep_report(found: Analysis, ceilings: Ceilings | None = None) -> SweepPage:
    """Return the report of a sweep.

    Args:
        found: The result of the sweep.
        ceilings: A file of `unloader preflight --save`, to compare the sweep with.
    """
    live = found if isinstance(found, SweepDocument) else None
    unit: Unit = "bytes" if found.work.unit == "bytes" else "rows"
    amount, row_bytes = found.work.amount, None
    if found.work.unit == "table":
        unit, amount = "runs", _HOUR
    levels = tuple(
        LevelLine(
            parallelism=each.parallelism,
            seconds=each.seconds,
            rate=_digits(amount / each.seconds),
            lowest_rate=_digits(amount / each.slowest_seconds),
            highest_rate=_digits(amount / each.fastest_seconds),
            repeats=each.repeats,
            cpu=each.load.cpu,
            state=_state(each),
            reasons="; ".join(each.reasons),
        )
        for each in found.levels
    )
    if live is not None:
        if len(live.curves) > 1:
            # Bytes of one format or codec are not comparable with bytes of another.
            unit, levels = "rows", tuple(_levels_of_points(live))
        medians = (point.median for point in live.points)
        row_bytes = next((each.bytes / each.rows for each in medians if each is not None), None)
    page = SweepPage(
        sweep=found if live is None else replace(live, points=()),
        unit=unit,
        levels=levels,
        ceilings=tuple(_ceiling_lines(ceilings, unit, row_bytes)) if ceilings is not None else (),
    )
    if live is None:
        return page
    measured = [point for point in live.points if point.measurements]
    # The fastest of the recommended parallelism, or of all.
    same = [point for point in measured if point.parallelism == live.recommended]
    shown = max(same or measured, key=lambda point: point.rows_per_second or 0.0, default=None)
    median = shown.median if shown is not None else None
    bars, together = bars_of(
        Bar(
            worker=each.worker,
            unit=each.unit,
            last_unit=each.unit,
            started_s=_digits(each.began_seconds),
            seconds=each.seconds,
            rows=each.rows,
        )
        for each in (median.timeline if median is not None else ())
    )
    return replace(
        page,
        recommended_options=label(live.recommended_options),
        points=tuple(map(_point_line, live.points)),
        shown_point=label(shown.settings) if shown is not None else "",
        bars=bars,
        units_per_bar=together,
    )


def _point_line(point: PointReport) -> PointLine:
    median = point.median
    return PointLine(
        label=label(point.settings),
        runs=len(point.measurements),
        point=replace(point, measurements=()),
        median=None if median is None else replace(median, timeline=()),
    )


def _state(level: MeasuredLevel) -> State:
    if level.outlier:
        return "outlier"
    if not level.valid:
        return "not valid"
    if level.sustained is None:
        return "valid"
    return "sustained" if level.sustained else "not sustained"


def _levels_of_points(found: SweepDocument) -> Iterator[LevelLine]:
    judged = {
        (label(curve.settings), level.parallelism): level
        for curve in found.curves
        for level in curve.levels
    }
    for point in found.points:
        series = label({k: text for k, text in point.settings.items() if k != PARALLELISM})
        level, median = judged.get((series, point.parallelism)), point.median
        yield LevelLine(
            parallelism=point.parallelism,
            series=series,
            seconds=median.seconds if median is not None else None,
            rate=point.rows_per_second,
            repeats=len(point.measurements),
            cpu=level.load.cpu if level is not None else None,
            state="failed" if level is None else _state(level),
            reasons=point.problem or ("; ".join(level.reasons) if level is not None else ""),
        )


def _ceiling_lines(found: Ceilings, unit: Unit, row_bytes: float | None) -> Iterator[CeilingLine]:
    """Yield the ceilings in the unit of a sweep; `row_bytes` is the size of a row in the files."""
    if found.disk is not None and unit == "bytes":
        yield CeilingLine(what="disk, sequential writes", rate=found.disk.bytes_per_second)
    if found.source is not None:
        rate = max(each.rows_per_second for each in found.source.levels)
        if unit == "rows":
            yield CeilingLine(what="source, rows thrown away", rate=rate)
        elif unit == "bytes" and row_bytes is not None:
            yield CeilingLine(what="source, rows thrown away", rate=round(rate * row_bytes, 1))


def _digits(value: float) -> float:
    """Return a number with six digits of it."""
    return float(f"{value:.6g}")


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


def _costs(points: Sequence[PointLine]) -> Chart:
    shown = points[:MOST_STACKS]
    # The names of the settings are on the axis, their values beside the bars.
    settings = [
        [each.strip().split(" ", 1) for each in point.label.split("--") if each.strip()]
        for point in shown
    ]
    several = len({line.point.parallelism for line in shown}) < len(shown)
    labels = [
        ", ".join(each[-1] for each in named) if several else f"{line.point.parallelism}"
        for line, named in zip(shown, settings, strict=True)
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
        layers = [*_knee(page), *_ceilings(near, narrow), *_levels(levels, series, narrow)]
        ring = [
            {**each, "says": f"recommended: {each['says']}"}
            for each in levels
            if each["workers"] == page.sweep.recommended and not each["series"]
        ]
        if ring:
            mark = {"filled": False, "size": 320, "strokeWidth": 2, "color": "var(--ink)"}
            layers.append(layer("point", ring, {**mark, "opacity": 1}, description="says"))
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
        for bound in (page.sweep.knee_interval.low, page.sweep.knee_interval.high)
    )
    if page.sweep.knee is not None:
        yield f"The knee is at {workers(page.sweep.knee)} ({low} to {high})."
    else:
        yield "The points do not reach a knee."
    if page.sweep.recommended is not None:
        yield f"Recommended: {workers(page.sweep.recommended)}."
    bad = sum(level.state in ("not valid", "outlier", "failed") for level in page.levels)
    if bad:
        yield f"{bad} of {len(page.levels)} points do not count; the table shows the reason."


def _knee(page: SweepPage) -> Iterator[Spec]:
    if page.sweep.knee is None:
        return
    most = max(level.parallelism for level in page.levels)
    low, high = page.sweep.knee_interval.low or 0, min(page.sweep.knee_interval.high or most, most)
    full: Spec = {"y": {"value": 0}, "y2": {"value": "height"}}
    band = {"color": "var(--grey)", "opacity": 0.15, "aria": False}
    left = {"field": "low", "type": "quantitative"}
    yield layer("rect", [{"low": low, "high": high}], band, x=left, x2="high", **full)
    values = [{"workers": page.sweep.knee, "text": f"knee {number(page.sweep.knee)}"}]
    dashed = {"color": "var(--muted)", "strokeDash": [2, 3]}
    yield layer("rule", values, dashed, x=_WORKERS, **full)
    text = {"align": "left", "dx": 5, "dy": 4, "fontSize": 12, "color": "var(--muted)"}
    yield layer("text", values, {**text, "baseline": "top"}, x=_WORKERS, y=full["y"], text="text")


def _ceilings(near: list[Spec], narrow: bool) -> Iterator[Spec]:
    if near:
        left, red = {"value": 0}, {"color": "var(--red)"}
        line = {**red, "strokeDash": [6, 4], "strokeWidth": 1.5}
        right = {"value": "width"}
        yield layer("rule", near, line, x=left, x2=right, y=_RATE, description="text")
        text: Spec = {"align": "left", "baseline": "bottom", "dx": 4, "dy": -2}
        text = {**text, **red, "fontSize": 11 if narrow else 12}
        yield layer("text", near, text, x=left, y=_RATE, text="text")


def _levels(levels: list[Spec], series: list[str], narrow: bool) -> Iterator[Spec]:
    """Yield the lines of the settings, the spread of each point, and the points."""
    states = [state for state in _STATES if state in {each["state"] for each in levels}]
    colour = colours("state", {state: _STATES[state][0] for state in states}, narrow)
    if len(series) > 1:
        line: Spec = {"detail": {"field": "series"}}
        if len(series) <= len(LINE_COLOURS):
            line = {"color": {"field": "series", "type": "nominal"}}
            colour = colours("series", dict(zip(series, LINE_COLOURS, strict=False)), narrow)
        mark = {"color": "var(--line)", "opacity": 0.6, "aria": False}
        yield layer("line", levels, mark, **line)
    spread = [each for each in levels if each["low"] != each["high"]]
    mark = {"color": "var(--muted)", "strokeWidth": 1.5, "aria": False}
    yield layer("rule", spread, mark, y={"field": "low", "type": "quantitative"}, y2="high")
    # Two legends side by side are wider than a narrow page.
    legend = {"orient": "bottom" if len(series) > 1 else "top", "title": None}
    grey = {"symbolFillColor": "var(--muted)", "symbolStrokeColor": "var(--muted)"}
    shape = {
        "field": "state",
        "type": "nominal",
        "sort": states,
        "scale": {"domain": states, "range": [_STATES[state][1] for state in states]},
        "legend": {**legend, "columns": 2 if narrow else 0, **grey},
    }
    mark = {"filled": True, "size": 90, "opacity": 1}
    yield layer("point", levels, mark, color=colour, shape=shape, description="says")
