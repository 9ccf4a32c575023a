"""How figures are written on a page, and the charts of the page of a run.

A chart is a specification in Vega-Lite and, drawn by vl-convert, SVG. Colours are names of the
page's style sheet, which has one set for light and one for dark: a chart is drawn once and fits
both. It is drawn for a wide and for a narrow page. The drawing needs no program in the browser: the
mouse shows the `title` of a mark, and a screen reader reads its `aria-label`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from msgspec import Struct

from unloader.errors import ConfigError
from unloader.nouns import bytes_per_second, counted, rows_per_second, size
from unloader.tuning.run_report import Bar, RunReport

UNKNOWN = "–"


def seconds(value: float) -> str:
    """Return seconds with three digits of them, or to the second."""
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


def number(value: float) -> str:
    """Return a number with four digits of it."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def workers(value: float) -> str:
    """Return a number of workers, with the word."""
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

WIDE, NARROW = 1040, 340
"""Pixels: of a window of 1280 and one of 390."""

STAGES = ("fetch", "encode", "compress", "write")
STAGE_COLOURS = ("var(--blue)", "var(--green)", "var(--amber)", "var(--violet)")

LINE_COLOURS = (
    *("var(--blue)", "var(--amber)", "var(--green)", "var(--violet)"),
    *("var(--red)", "var(--teal)", "var(--pink)", "var(--grey)"),
)
"""Of lines in one chart; there are never more lines than these."""

MOST_WORKERS_NAMED = 64
"""With more of them on an axis their numbers have no room."""

_OUTCOMES: dict[str, str] = {
    "done": "var(--blue)",
    "done in a retry": "var(--amber)",
    "failed": "var(--red)",
}

Spec = dict[str, Any]

Load = tuple[float, str, float]
"""Seconds since the begin, a node's number, and the share of its CPUs that was busy."""


class Chart(Struct, frozen=True, kw_only=True):
    """One chart of a page."""

    name: str
    """Its id on the page."""
    title: str
    summary: str
    """A description in a sentence or two, also for screen readers."""
    spec: Callable[[bool], Spec]
    """Vega-Lite without size and style; the argument is whether the page is narrow."""


def quantity(field: str, title: str, form: str = "~s", **more: Any) -> Spec:
    axis = {"format": form}
    return {"field": field, "type": "quantitative", "title": title, "axis": axis, **more}


def layer(kind: str, values: list[Spec], mark: Spec, **encoding: Spec | str) -> Spec:
    """Return marks of a kind for some values; an encoding that is a text is the name of a field."""
    return {
        "data": {"values": values},
        "mark": {"type": kind, **mark},
        "encoding": {
            name: {"field": each} if isinstance(each, str) else each
            for name, each in encoding.items()
        },
    }


def colours(field: str, names: dict[str, str], narrow: bool) -> Spec:
    """Return the encoding of a few names as colours, which a legend above the chart explains."""
    return {
        "field": field,
        "type": "nominal",
        "sort": list(names),
        "scale": {"domain": list(names), "range": list(names.values())},
        "legend": {"orient": "top", "title": None, "columns": 2 if narrow else 0},
    }


_AXIS_TITLE = {"titleColor": "var(--muted)", "titleFontWeight": "normal", "titleFontSize": 12}

_CONFIG: Spec = {
    "background": None,
    "font": "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "labelFontSize": 12,
        "gridColor": "var(--grid)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "titlePadding": 8,
        **_AXIS_TITLE,
    },
    "axisX": {"labelFlush": False, "labelOverlap": True, "tickCount": 6},
    "axisY": {"tickCount": 5, "domain": False, "ticks": False, "labelPadding": 6},
    "legend": {
        "labelColor": "var(--ink)",
        "labelFontSize": 12,
        "symbolStrokeWidth": 2,
        "labelLimit": 240,
        **_AXIS_TITLE,
    },
}

_SVG = "http://www.w3.org/2000/svg"


def missing(module: str) -> ConfigError:
    """Return the error for a library that is not installed."""
    return ConfigError(
        f"a report needs the module {module!r}, which is not installed",
        "pip install 'unloader[report]'",
    )


def svg_of(chart: Chart) -> dict[str, str]:
    """Return a chart as two SVG elements for a page in HTML, a wide and a narrow one.

    Raises:
        ConfigError: The library is missing.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise missing(str(error.name)) from error
    ElementTree.register_namespace("", _SVG)
    found = {}
    for kind, width in (("wide", WIDE), ("narrow", NARROW)):
        spec = {
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "width": width,
            "autosize": {"type": "fit-x", "contains": "padding"},
            "padding": {"left": 2, "right": 14, "top": 4, "bottom": 2},
            "config": _CONFIG,
            **chart.spec(kind == "narrow"),
        }
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


def time_axis(field: str) -> Spec:
    return quantity(field, "seconds since the run began", ",~f", scale={"domainMin": 0})


def rows_height(rows: int) -> int:
    """Return the height of a chart with a number of rows: up to about a screen."""
    return max(40, min(rows * 22, 700))


def stacked(
    values: list[Spec], y: Spec, x: Spec, field: str, names: dict[str, str], height: int
) -> Callable[[bool], Spec]:
    """Return the specification of bars with a part for each name, in the order of `place`."""
    order = {"field": "place", "type": "quantitative"}
    mark = {"stroke": "var(--card)", "strokeWidth": 1}
    along: Spec = {"y": y, "x": {**x, "stack": "zero"}, "order": order, "description": "says"}
    return lambda narrow: {
        "height": height,
        **layer("bar", values, mark, **along, color=colours(field, names, narrow)),
    }


def worker_axis(workers: int) -> Spec:
    every = -(-workers // MOST_WORKERS_NAMED)
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
        yield timeline_chart(report.bars, report.units_per_bar, note)
    if len(report.samples) > 1:
        yield _speed(report)
    loads = [
        (sample.at_s, node, share)
        for sample in report.samples
        for node, share in sample.cpu_by_node.items()
    ]
    if loads:
        yield load_chart(loads)
    if report.workers:
        yield _worker_stages(report)


def timeline_chart(bars: Sequence[Bar], units_per_bar: int, note: str = "") -> Chart:
    """Return the chart of what each worker did, from at least one bar."""
    what = f"up to {units_per_bar} units in a row" if units_per_bar > 1 else "an attempt at a unit"
    values = [
        {
            "worker": bar.worker,
            "began": bar.started_s,
            "ended": bar.started_s + bar.seconds,
            "outcome": bar.outcome,
            "says": _says(bar),
        }
        for bar in bars
    ]
    found = {str(bar.outcome) for bar in bars}
    names = {name: colour for name, colour in _OUTCOMES.items() if name in found}
    workers = len({bar.worker for bar in bars})
    return Chart(
        name="timeline",
        title="What each worker did",
        summary=f"Each bar is {what}, on the line of its worker.{note}",
        spec=lambda narrow: {
            "height": rows_height(workers),
            **layer(
                "bar",
                values,
                {"stroke": "var(--card)", "strokeWidth": 0.7},
                y=worker_axis(workers),
                x=time_axis("began"),
                x2="ended",
                color=colours("outcome", names, narrow),
                description="says",
            ),
        },
    )


def _says(bar: Bar) -> str:
    several = f"{bar.units} units {bar.unit}-{bar.last_unit}"
    units = f"unit {bar.unit}" if bar.units == 1 else several
    partition = f", partition {bar.partition}" if bar.partition else ""
    attempt = f", attempt {bar.attempt}" if bar.attempt > 1 else ""
    rows = f"failed: {bar.message}" if bar.outcome == "failed" else f"{bar.rows:,} rows"
    time = f"{seconds(bar.seconds)} from {seconds(bar.started_s)} on"
    return f"worker {bar.worker}, {units}{partition}{attempt}: {rows}, {time}"


def load_chart(loads: Sequence[Load]) -> Chart:
    """Return the chart of the load of the NUMA nodes."""
    nodes = sorted({node for _, node, _ in loads}, key=lambda n: int(n) if n.isdecimal() else -1)
    if len(nodes) <= len(LINE_COLOURS):
        lines, many = [f"node {node}" for node in nodes], ""
        shown = [(at, f"node {node}", share) for at, node, share in loads]
    else:
        lines = ["busiest node", "mean", "idlest node"]
        many = f" Of {len(nodes)} nodes, only the busiest, the idlest and the mean are shown."
        moments: dict[float, list[float]] = defaultdict(list)
        for at, _, share in loads:
            moments[at].append(share)
        shown = [
            (at, line, value)
            for at, each in moments.items()
            for line, value in zip(
                lines, (max(each), sum(each) / len(each), min(each)), strict=True
            )
        ]
    values = [
        {
            "at": at,
            "line": line,
            "share": share,
            "says": f"{line}: {share:.0%} busy at {seconds(at)}",
        }
        for at, line, share in shown
    ]
    names = dict(zip(lines, LINE_COLOURS, strict=False))
    return Chart(
        name="load",
        title="Load of the NUMA nodes",
        summary="The busy part of the CPUs that the run might use, by all processes of the "
        f"machine; at most {max(share for _, _, share in loads):.0%}.{many}",
        spec=lambda narrow: {
            "data": {"values": values},
            "height": 180,
            "encoding": {
                "x": time_axis("at"),
                "y": quantity("share", "CPUs busy", ".0%", scale={"domain": [0, 1]}),
                "color": colours("line", names, narrow),
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
    steps: list[Spec] = [
        {
            "at": step.seconds,
            "workers": step.workers,
            "says": f"{workers(step.workers)} from {seconds(step.seconds)} on, {step.cause}: "
            f"{step.reason}",
        }
        for step in report.manifest.parallelism_steps or ()
    ]
    end = report.samples[-1].at_s
    if steps and end > steps[-1]["at"]:
        steps.append({"at": end, "workers": steps[-1]["workers"], "says": ""})
    along = {"interpolate": "step-before", "color": "var(--blue)", "aria": False}
    speed = {
        "data": {"values": values},
        "encoding": {"y": quantity("rate", "rows/s")},
        "layer": [
            {"mark": {"type": "area", "opacity": 0.15, **along}},
            {"mark": {"type": "line", "strokeWidth": 2, **along}},
            _unseen(color="var(--blue)"),
        ],
    }
    more = (
        " The yellow line, with the axis at the right, is the intended number of workers; each "
        "of its points is a change, which the table below explains."
    )
    return Chart(
        name="speed",
        title="Rows per second",
        summary=f"The fastest moment was {rows_per_second(best.rows_per_second)}, "
        f"{seconds(best.at_s)} after the start. Rows count when they are encoded."
        + (more if steps else ""),
        spec=lambda narrow: {
            "height": 220 if steps else 200,
            "encoding": {"x": time_axis("at")},
            "layer": [speed, *([_steps(steps, narrow)] if steps else [])],
            "resolve": {"scale": {"y": "independent"}},
        },
    )


def _steps(steps: list[Spec], narrow: bool) -> Spec:
    most = max(each["workers"] for each in steps)
    y = quantity("workers", "workers", scale={"domain": [0, most * 1.1], "nice": False})
    y["axis"] = {
        **{"orient": "right", "format": "d", "tickMinStep": 1, "tickCount": min(most, 5)},
        **{"grid": False, "titleColor": "var(--amber)"},
    }
    line = {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "aria": False}
    point = {"type": "point", "filled": True, "opacity": 1, "size": 50 if narrow else 70}
    return {
        "data": {"values": steps},
        "encoding": {"y": y},
        "layer": [
            {"mark": {**line, "color": "var(--amber)"}},
            {
                "transform": [{"filter": "datum.says != ''"}],
                "mark": {**point, "color": "var(--amber)"},
                "encoding": {"description": {"field": "says"}},
            },
        ],
    }


def _worker_stages(report: RunReport) -> Chart:
    values = [
        {
            "worker": each.record.worker,
            "stage": stage,
            "s": took,
            "place": place,
            "says": f"worker {each.record.worker}, {stage}: {seconds(took)}",
        }
        for each in report.workers
        for place, stage in enumerate(STAGES)
        for took in (getattr(each.stages, f"{stage}_s"),)
    ]
    count = len(report.workers)
    names = dict(zip(STAGES, STAGE_COLOURS, strict=True))
    x = quantity("s", "seconds", ",~f")
    return Chart(
        name="worker-stages",
        title="Stages, by worker",
        summary="Wall seconds of each stage over all units of a worker. Stages overlap, so their "
        "sum may be longer than the worker's time. The longest stage limits the worker.",
        spec=stacked(values, worker_axis(count), x, "stage", names, rows_height(count)),
    )
