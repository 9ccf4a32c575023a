"""How figures are written on a page, and the charts of the pages of runs and sweeps.

A chart is a specification in Vega-Lite and, drawn by vl-convert, SVG. Colours are names of the
page's style sheet, which has one set for light and one for dark: a chart is drawn once and fits
both. It is drawn for a wide and for a narrow page. The drawing needs no program in the browser: the
mouse shows the `title` of a mark, and a screen reader reads its `aria-label`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from typing import Any
from xml.etree import ElementTree

import msgspec
from msgspec import Struct

from unloader.errors import ConfigError
from unloader.nouns import bytes_per_second, counted, rows_per_second, size
from unloader.tuning.report_records import Bar, PointLine, RunReport, SweepPage

UNKNOWN = "–"


def seconds(value: float) -> str:
    """Return seconds with three digits of them, or to the second."""
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


def number(value: float) -> str:
    """Return a number with four digits of it."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def workers(value: float) -> str:
    return "1 worker" if value == 1 else f"{number(value)} workers"


FORMS: dict[str, Callable[[Any], str]] = {
    "count": lambda value: f"{value:,.0f}",
    "size": size,
    "seconds": seconds,
    "number": number,
    "share": lambda value: f"{value:.1%}",
    "rows_per_second": rows_per_second,
    "bytes_per_second": bytes_per_second,
    "workers": workers,
    "text": str,
}
"""By the names that templates use."""

_STAGES = {
    "fetch": "var(--blue)",
    "encode": "var(--green)",
    "compress": "var(--amber)",
    "write": "var(--violet)",
}

_LINE_COLOURS = (
    *("var(--blue)", "var(--amber)", "var(--green)", "var(--violet)"),
    *("var(--red)", "var(--teal)", "var(--pink)", "var(--grey)"),
)
"""Of lines in one chart; there are never more lines than these."""

_OUTCOMES = {"done": "var(--blue)", "done in a retry": "var(--amber)", "failed": "var(--red)"}

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

_MOST_WORKERS_NAMED = 64
"""With more of them on an axis their numbers have no room."""

_MOST_STACKS = 40

_MOST_ABOVE = 3.0
"""A ceiling higher than this multiple of the fastest point is a text and not drawn: the curve would
be flat."""

Spec = dict[str, Any]


class Chart(Struct, frozen=True, kw_only=True):
    """One chart of a page."""

    name: str
    """Its id on the page."""
    title: str
    summary: str
    """A description in a sentence or two, also for screen readers."""
    spec: Spec
    """Vega-Lite without size and style, which `templates/chart.json` has."""


def _quantity(field: str, title: str | None = None, form: str = "~s", **more: Any) -> Spec:
    axis = {} if title is None else {"title": title, "axis": {"format": form}}
    return {"field": field, "type": "quantitative", **axis, **more}


def _layer(kind: str, values: list[Spec], mark: Spec, **encoding: Spec | str) -> Spec:
    """Return marks of a kind for some values; an encoding that is a text is the name of a field."""
    return {
        "data": {"values": values},
        "mark": {"type": kind, **mark},
        "encoding": {
            name: {"field": each} if isinstance(each, str) else each
            for name, each in encoding.items()
        },
    }


def _colours(field: str, names: dict[str, str]) -> Spec:
    """Return the encoding of a few names as colours, which a legend above the chart explains."""
    return {
        "field": field,
        "type": "nominal",
        "sort": list(names),
        "scale": {"domain": list(names), "range": list(names.values())},
        "legend": {"orient": "top", "title": None},
    }


_SVG = "http://www.w3.org/2000/svg"


def missing(module: str) -> ConfigError:
    return ConfigError(
        f"a report needs the module {module!r}, which is not installed",
        "pip install 'unloader[report]'",
    )


def svg_of(chart: Chart) -> dict[str, str]:
    """Return a chart as SVG elements of a page, wide and narrow; the library may be missing."""
    try:
        import vl_convert
    except ImportError as error:
        raise missing(str(error.name)) from error
    ElementTree.register_namespace("", _SVG)
    style = (resources.files("unloader.tuning") / "templates" / "chart.json").read_bytes()
    found = {}
    # Pixels of a window of 1280 and one of 390, columns of a legend (0 is one row), and pixels of
    # the longest name on an axis.
    for kind, width, columns, longest in (("wide", 1040, 0, 320), ("narrow", 340, 2, 110)):
        spec = msgspec.json.decode(style) | chart.spec | {"width": width}
        spec["config"]["legend"]["columns"] = columns
        spec["config"]["axisY"]["labelLimit"] = longest
        # No address is allowed, so that no data can make the library fetch anything.
        text = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
        # It takes the width that it is given, and has titles for the mouse.
        root = ElementTree.fromstring(text)
        root.attrib.pop("height", None)
        root.set("style", f"max-width:{root.attrib.pop('width')}px")
        root.set("class", kind)
        root.set("role", "img")
        root.set("aria-label", f"{chart.title}. {chart.summary}")
        for mark in list(root.iter()):
            says = mark.get("aria-label")
            is_data = mark.get("aria-roledescription") not in ("axis", "legend")
            if mark is not root and says and mark.get("role") == "graphics-symbol" and is_data:
                ElementTree.SubElement(mark, f"{{{_SVG}}}title").text = says
        found[kind] = ElementTree.tostring(root, encoding="unicode")
    return found


def _time_axis(field: str) -> Spec:
    return _quantity(field, "seconds since the run began", ",~f", scale={"domainMin": 0})


def _height(rows: int) -> int:
    """Return the height of a chart with a number of rows: up to about a screen."""
    return max(40, min(rows * 24, 700))


def _stacked(values: list[Spec], y: Spec, title: str, names: dict[str, str], rows: int) -> Spec:
    """Return the specification of bars of `value` with a part for each name."""
    order = {name: place for place, name in enumerate(names)}
    values = [{**each, "place": order[each["part"]]} for each in values]
    return {
        "height": _height(rows),
        **_layer(
            "bar",
            values,
            {"stroke": "var(--card)", "strokeWidth": 1},
            y=y,
            x=_quantity("value", title, ",~f", stack="zero"),
            order=_quantity("place"),
            description="says",
            color=_colours("part", names),
        ),
    }


def _worker_axis(workers: int) -> Spec:
    every = -(-workers // _MOST_WORKERS_NAMED)
    shown = {} if every == 1 else {"labelExpr": f"datum.value % {every} ? '' : datum.label"}
    axis = {"grid": False, **shown}
    return {"field": "worker", "type": "ordinal", "title": "worker", "axis": axis}


def run_charts(report: RunReport) -> Iterator[Chart]:
    """Yield the charts that there is something to show of."""
    if report.bars:
        spread, note = report.spread, ""
        if spread.first_worker_idle_s is not None and spread.last_worker_idle_s is not None:
            note = (
                " The first worker had no more work after "
                f"{seconds(spread.first_worker_idle_s)}, the last worker after "
                f"{seconds(spread.last_worker_idle_s)}."
            )
        yield _timeline(report.bars, report.units_per_bar, note)
    if len(report.samples) > 1:
        yield _speed(report)
    if any(sample.cpu_by_node for sample in report.samples):
        yield _load(report)
    if report.workers:
        values = [
            {
                "worker": each.record.worker,
                "part": stage,
                "value": took,
                "says": f"worker {each.record.worker}, {stage}: {seconds(took)}",
            }
            for each in report.workers
            for stage in _STAGES
            for took in (getattr(each.stages, f"{stage}_s"),)
        ]
        count = len(report.workers)
        yield Chart(
            name="worker-stages",
            title="Stages, by worker",
            summary="Wall seconds of each stage over all units of a worker. Stages overlap, so "
            "their sum may be longer than the worker's time. The longest stage limits the worker.",
            spec=_stacked(values, _worker_axis(count), "seconds", _STAGES, count),
        )


def _timeline(bars: Sequence[Bar], units_per_bar: int, note: str) -> Chart:
    """Return the chart of what each worker did, from at least one bar."""
    what = f"up to {units_per_bar} units in a row" if units_per_bar > 1 else "an attempt at a unit"
    values = []
    for bar in bars:
        several = f"{bar.units} units {bar.unit}-{bar.last_unit}"
        units = f"unit {bar.unit}" if bar.units == 1 else several
        partition = f", partition {bar.partition}" if bar.partition else ""
        attempt = f", attempt {bar.attempt}" if bar.attempt > 1 else ""
        rows = f"failed: {bar.message}" if bar.outcome == "failed" else f"{bar.rows:,} rows"
        time = f"{seconds(bar.seconds)} from {seconds(bar.started_s)} on"
        values.append(
            {
                "worker": bar.worker,
                "began": bar.started_s,
                "ended": bar.started_s + bar.seconds,
                "outcome": bar.outcome,
                "says": f"worker {bar.worker}, {units}{partition}{attempt}: {rows}, {time}",
            }
        )
    found = {bar.outcome for bar in bars}
    workers = len({bar.worker for bar in bars})
    return Chart(
        name="timeline",
        title="What each worker did",
        summary=f"Each bar is {what}, on the line of its worker.{note}",
        spec={
            "height": _height(workers),
            **_layer(
                "bar",
                values,
                {"stroke": "var(--card)", "strokeWidth": 0.7},
                y=_worker_axis(workers),
                x=_time_axis("began"),
                x2="ended",
                color=_colours("outcome", {n: _OUTCOMES[n] for n in _OUTCOMES if n in found}),
                description="says",
            ),
        },
    )


def _load(report: RunReport) -> Chart:
    loads = [(each.at_s, each.cpu_by_node) for each in report.samples if each.cpu_by_node]
    every = {node for _, each in loads for node in each}
    nodes = sorted(every, key=lambda n: int(n) if n.isdecimal() else -1)
    many = ""
    if len(nodes) <= len(_LINE_COLOURS):
        lines = [f"node {node}" for node in nodes]
        shown = [(at, [each.get(node) for node in nodes]) for at, each in loads]
    else:
        lines = ["busiest node", "mean", "idlest node"]
        many = f" Of {len(nodes)} nodes, only the busiest, the idlest and the mean are shown."
        sets = [(at, list(each.values())) for at, each in loads]
        shown = [(at, [max(each), sum(each) / len(each), min(each)]) for at, each in sets]
    values: list[Spec] = [
        {
            "at": at,
            "line": line,
            "share": share,
            "says": f"{line}: {share:.0%} busy at {seconds(at)}",
        }
        for at, shares in shown
        for line, share in zip(lines, shares, strict=True)
        if share is not None
    ]
    return Chart(
        name="load",
        title="Load of the NUMA nodes",
        summary="The busy part of the CPUs that the run might use, by all processes of the "
        f"machine; at most {max(each['share'] for each in values):.0%}.{many}",
        spec={
            "data": {"values": values},
            "height": 180,
            "encoding": {
                "x": _time_axis("at"),
                "y": _quantity("share", "CPUs busy", ".0%", scale={"domain": [0, 1]}),
                "color": _colours("line", dict(zip(lines, _LINE_COLOURS, strict=False))),
            },
            "layer": [{"mark": {"type": "line", "strokeWidth": 2, "aria": False}}, _unseen()],
        },
    )


def _unseen(**mark: str) -> Spec:
    """Return points that are not seen: the mouse shows the figure of each place of a line."""
    return {
        "mark": {"type": "point", "size": 90, "filled": True, "opacity": 0, **mark},
        "encoding": {"description": {"field": "says"}},
    }


def _speed(report: RunReport) -> Chart:
    """Return the chart of the rows per second over time, and of the workers where they changed."""
    values = [
        {
            "at": sample.at_s,
            "rate": sample.rows_per_second,
            "says": f"{rows_per_second(sample.rows_per_second)} at "
            f"{seconds(sample.at_s)}, {counted(sample.busy_workers, 'worker')} busy",
        }
        for sample in report.samples
    ]
    best = max(report.samples, key=lambda sample: sample.rows_per_second)
    along = {"interpolate": "step-before", "color": "var(--blue)", "aria": False}
    layers: list[Spec] = [
        {
            "data": {"values": values},
            "encoding": {"y": _quantity("rate", "rows/s")},
            "layer": [
                {"mark": {"type": "area", "opacity": 0.15, **along}},
                {"mark": {"type": "line", "strokeWidth": 2, **along}},
                _unseen(color="var(--blue)"),
            ],
        }
    ]
    steps: list[Spec] = [
        {
            "at": step.seconds,
            "workers": step.workers,
            "says": f"{workers(step.workers)} from {seconds(step.seconds)} on, {step.cause}: "
            f"{step.reason}",
        }
        for step in report.manifest.parallelism_steps or ()
    ]
    more = ""
    if steps:
        more = (
            " The yellow line, with the axis at the right, is the intended number of workers; each "
            "of its points is a change, which the table below explains."
        )
        most, end = max(each["workers"] for each in steps), report.samples[-1].at_s
        line = [*steps]
        if end > steps[-1]["at"]:
            line.append({"at": end, "workers": steps[-1]["workers"]})
        y = _quantity("workers", "workers", scale={"domain": [0, most * 1.1], "nice": False})
        y["axis"] = {
            **{"orient": "right", "format": "d", "tickMinStep": 1, "tickCount": min(most, 5)},
            **{"grid": False, "titleColor": "var(--amber)"},
        }
        mark: Spec = {"color": "var(--amber)"}
        along = {**mark, "interpolate": "step-after", "strokeWidth": 2, "aria": False}
        point = {**mark, "filled": True, "opacity": 1, "size": 60}
        layers += [
            _layer("line", line, along, y=y),
            _layer("point", steps, point, y=y, description="says"),
        ]
    return Chart(
        name="speed",
        title="Rows per second",
        summary=f"The fastest moment was {rows_per_second(best.rows_per_second)}, "
        f"{seconds(best.at_s)} after the start. Rows count when they are encoded.{more}",
        spec={
            "height": 220,
            "encoding": {"x": _time_axis("at")},
            "layer": [layers[0], *([{"layer": layers[1:]}] if steps else [])],
            "resolve": {"scale": {"y": "independent"}},
        },
    )


def sweep_charts(page: SweepPage) -> Iterator[Chart]:
    """Yield the charts that there is something to show of."""
    if any(level.rate is not None for level in page.levels):
        yield _throughput(page)
    if any(point.median is not None and point.median.costs.total for point in page.points):
        yield _costs(page.points)
    if page.bars:
        note = f" It is the median run of {page.shown_point}."
        yield _timeline(page.bars, page.units_per_bar, note)


def _costs(points: Sequence[PointLine]) -> Chart:
    shown = points[:_MOST_STACKS]
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
    parts = {**_STAGES, "rest": "var(--grey)"}
    values = [
        {
            "point": label,
            "part": part,
            "value": value,
            "says": f"{point.label or label}, {part}: {value:.3g} CPU s per million rows",
        }
        for label, point in zip(labels, shown, strict=True)
        if point.median is not None
        for part in parts
        if (value := getattr(point.median.costs, part)) is not None
    ]
    found = {each["part"] for each in values}
    y = {
        "field": "point",
        "type": "ordinal",
        "title": ", ".join(each[0] for each in settings[0]) if several else "workers",
        "sort": labels,
        "axis": {"grid": False},
    }
    names = {part: colour for part, colour in parts.items() if part in found}
    more = f" The first {_MOST_STACKS} of {len(points)} points are shown."
    return Chart(
        name="costs",
        title="CPU of the workers, by stage",
        summary="CPU seconds of the workers for a million rows; rest is CPU time outside these "
        "stages, such as threads of a driver." + (more if len(points) > _MOST_STACKS else ""),
        spec=_stacked(values, y, "CPU seconds per million rows", names, len(shown)),
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
    sweep, most = page.sweep, max(each["rate"] for each in levels)
    low, high = sweep.knee_interval.low, sweep.knee_interval.high
    summary = ["The points do not reach a knee."]
    layers: list[Spec] = []
    if sweep.knee is not None:
        least, last = ("no bound" if bound is None else number(bound) for bound in (low, high))
        summary = [f"The knee is at {workers(sweep.knee)} ({least} to {last})."]
        full: Spec = {"y": {"value": 0}, "y2": {"value": "height"}}
        widest = max(level.parallelism for level in page.levels)
        band = [{"low": low or 0, "high": min(high or widest, widest)}]
        grey = {"color": "var(--grey)", "opacity": 0.15, "aria": False}
        knee = [{"workers": sweep.knee, "text": f"knee {number(sweep.knee)}"}]
        muted: Spec = {"color": "var(--muted)"}
        text = {**muted, "align": "left", "dx": 5, "dy": 4, "fontSize": 12, "baseline": "top"}
        at = _quantity("workers")
        layers += [
            _layer("rect", band, grey, x=_quantity("low"), x2="high", **full),
            _layer("rule", knee, {**muted, "strokeDash": [2, 3]}, x=at, **full),
            _layer("text", knee, text, x=at, y=full["y"], text="text"),
        ]
    if sweep.recommended is not None:
        summary.append(f"Recommended: {workers(sweep.recommended)}.")
    bad = sum(level.state in ("not valid", "outlier", "failed") for level in page.levels)
    if bad:
        summary.append(
            f"{bad} of {len(page.levels)} points do not count; the table shows the reason."
        )
    near: list[Spec] = []
    for each in page.ceilings:
        if each.rate <= most * _MOST_ABOVE:
            near.append({"rate": each.rate, "text": f"{each.what}: {told(each.rate)}"})
        else:
            far = f"{each.what}, {told(each.rate)}"
            summary.append(f"Too far above the chart to be drawn: {far}.")
    if near:
        left, red, rate = {"value": 0}, {"color": "var(--red)"}, _quantity("rate")
        line: Spec = {**red, "strokeDash": [6, 4], "strokeWidth": 1.5}
        text = {**red, "align": "left", "baseline": "bottom", "dx": 4, "dy": -2, "fontSize": 11}
        right = {"value": "width"}
        layers += [
            _layer("rule", near, line, x=left, x2=right, y=rate, description="text"),
            _layer("text", near, text, x=left, y=rate, text="text"),
        ]
    layers += _level_layers(levels)
    ring = [
        {**each, "says": f"recommended: {each['says']}"}
        for each in levels
        if each["workers"] == sweep.recommended and not each["series"]
    ]
    if ring:
        mark = {"filled": False, "size": 320, "strokeWidth": 2, "color": "var(--ink)"}
        layers.append(_layer("point", ring, {**mark, "opacity": 1}, description="says"))
    x = _quantity("workers", "workers", ",~f", scale={"domainMin": 0})
    x["axis"]["tickMinStep"] = 1
    y = _quantity("rate", title, "~s", scale={"domainMin": 0})
    if page.unit == "bytes":
        y["axis"] = {"labelExpr": "format(datum.value / 1e6, ',~f')"}
    return Chart(
        name="throughput",
        title="Speed by parallelism",
        summary=" ".join(summary),
        spec={"height": 320, "encoding": {"x": x, "y": y}, "layer": layers},
    )


def _level_layers(levels: list[Spec]) -> Iterator[Spec]:
    """Yield the lines of the settings, the spread of each point, and the points."""
    series = sorted({each["series"] for each in levels})
    found = {each["state"] for each in levels}
    states = {state: form for state, form in _STATES.items() if state in found}
    colour = _colours("state", {state: each for state, (each, _) in states.items()})
    if len(series) > 1:
        line: Spec = {"detail": {"field": "series"}}
        if len(series) <= len(_LINE_COLOURS):
            line = {"color": {"field": "series", "type": "nominal"}}
            colour = _colours("series", dict(zip(series, _LINE_COLOURS, strict=False)))
        mark = {"color": "var(--line)", "opacity": 0.6, "aria": False}
        yield _layer("line", levels, mark, **line)
    spread = [each for each in levels if each["low"] != each["high"]]
    mark = {"color": "var(--muted)", "strokeWidth": 1.5, "aria": False}
    yield _layer("rule", spread, mark, y=_quantity("low"), y2="high")
    shape = _colours("state", {state: form for state, (_, form) in states.items()})
    shape["legend"] = {
        **{"symbolFillColor": "var(--muted)", "symbolStrokeColor": "var(--muted)", "title": None},
        # Two legends side by side are wider than a narrow page.
        "orient": "bottom" if len(series) > 1 else "top",
    }
    mark = {"filled": True, "size": 90, "opacity": 1}
    yield _layer("point", levels, mark, color=colour, shape=shape, description="says")
