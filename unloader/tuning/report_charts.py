"""The charts of a page, as specifications in Vega-Lite and, drawn by vl-convert, as SVG.

Colours are names of the page's style sheet, which has one set for light and one for dark: a chart
is drawn once and fits both. It is drawn for a wide and for a narrow page. The drawing needs no
program in the browser: the mouse shows the `title` of a mark, and a screen reader reads its
`aria-label`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from msgspec import Struct

from unloader.errors import ConfigError
from unloader.nouns import counted
from unloader.tuning import report_figures as figures
from unloader.tuning.run_report import Bar, RunReport, StepLine

WIDE, NARROW = 1040, 340
"""Pixels: of a window of 1280 and one of 390."""

STAGES = ("fetch", "encode", "compress", "write")
STAGE_COLOURS = ("var(--blue)", "var(--green)", "var(--amber)", "var(--violet)")

LINE_COLOURS = (
    *("var(--blue)", "var(--amber)", "var(--green)", "var(--violet)"),
    *("var(--red)", "var(--teal)", "var(--pink)", "var(--grey)"),
)
"""Of lines in one chart; there are never more lines than these."""

Spec = dict[str, Any]


class Frame(Struct, frozen=True, kw_only=True):
    """What a chart is drawn into."""

    width: int

    @property
    def is_narrow(self) -> bool:
        """Whether the chart has no space beside the data."""
        return self.width < 600

    def pick(self, wide: Any, narrow: Any) -> Any:
        """Return what fits."""
        return narrow if self.is_narrow else wide


class Chart(Struct, frozen=True, kw_only=True):
    """One chart of a page."""

    name: str
    """Its id on the page."""
    title: str
    summary: str
    """A description in a sentence or two, also for screen readers."""
    spec: Callable[[Frame], Spec]
    """Vega-Lite without size and style; the frame has its width."""


def drawn(chart: Chart, frame: Frame) -> Spec:
    """Return the whole specification of a chart in one of its widths."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": frame.width,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": {"left": 2, "right": 14, "top": 4, "bottom": 2},
        "config": _CONFIG,
        **chart.spec(frame),
    }


def quantity(field: str, title: str, form: str = "~s", **more: Any) -> Spec:
    """Return the encoding of numbers along an axis."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "axis": {"format": form},
        **more,
    }


def colours(
    field: str, names: Sequence[str], values: Sequence[str], frame: Frame, title: str | None = None
) -> Spec:
    """Return the encoding of a few names as colours, told above the chart."""
    return {
        "field": field,
        "type": "nominal",
        "sort": list(names),
        "scale": {"domain": list(names), "range": list(values[: len(names)])},
        "legend": {"orient": "top", "title": title, "columns": frame.pick(0, 2)},
    }


_CONFIG: Spec = {
    "background": None,
    "font": "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "gridColor": "var(--grid)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "titlePadding": 8,
    },
    "axisX": {"labelFlush": False, "labelOverlap": True, "tickCount": 6},
    "axisY": {"tickCount": 5, "domain": False, "ticks": False, "labelPadding": 6},
    "legend": {
        "labelColor": "var(--ink)",
        "titleColor": "var(--muted)",
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "symbolStrokeWidth": 2,
        "labelLimit": 240,
    },
}


_SVG = "http://www.w3.org/2000/svg"
_MARK = "graphics-symbol"


def missing(module: str) -> ConfigError:
    """Return the error for a library that is not installed."""
    return ConfigError(
        f"a report needs the module {module!r}, which is not installed",
        "pip install 'unloader[report]'",
    )


def svg_of(chart: Chart) -> tuple[str, str]:
    """Return a chart as two SVG elements for a page in HTML, a wide and a narrow one.

    Raises:
        ConfigError: The library is missing.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise missing(str(error.name)) from error
    wide, narrow = (
        # No address is allowed, so that no data can make the library fetch anything.
        vl_convert.vegalite_to_svg(drawn(chart, Frame(width=width)), allowed_base_urls=[])
        for width in (WIDE, NARROW)
    )
    return _for_page(wide, chart, "wide"), _for_page(narrow, chart, "narrow")


def _for_page(text: str, chart: Chart, kind: str) -> str:
    """Return an SVG that takes the width it is given, with titles for the mouse."""
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(text)
    root.attrib.pop("height", None)
    width = root.attrib.pop("width")
    root.set("class", kind)
    root.set("style", f"max-width:{width}px")
    root.set("role", "img")
    root.set("aria-label", f"{chart.title}. {chart.summary}")
    for mark in root.iter():
        says = mark.get("aria-label")
        if mark is not root and says and mark.get("role") == _MARK and _is_data(mark):
            title = ElementTree.SubElement(mark, f"{{{_SVG}}}title")
            title.text = says
    return ElementTree.tostring(root, encoding="unicode")


def _is_data(mark: ElementTree.Element) -> bool:
    return mark.get("aria-roledescription") not in ("axis", "legend")


MOST_WORKERS_NAMED = 64
"""With more of them on an axis their numbers have no room."""

_OUTCOMES = ("done", "done in a retry", "failed")
_OUTCOME_COLOURS = ("var(--blue)", "var(--amber)", "var(--red)")

Load = tuple[float, str, float]
"""Seconds since the begin, a node's number, and the share of its CPUs that was busy."""


def timeline_chart(bars: Sequence[Bar], units_per_bar: int, note: str = "") -> Chart:
    """Return the chart of what each worker did.

    Args:
        bars: At least one.
        units_per_bar: Most units of one bar.
        note: A further sentence of the summary.
    """
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
    found = {bar.outcome for bar in bars}
    names = [name for name in _OUTCOMES if name in found]
    chosen = [_OUTCOME_COLOURS[_OUTCOMES.index(name)] for name in names]
    workers = len({bar.worker for bar in bars})

    def spec(frame: Frame) -> Spec:
        return {
            "data": {"values": values},
            "height": rows_height(workers),
            "mark": {"type": "bar", "stroke": "var(--card)", "strokeWidth": 0.7},
            "encoding": {
                "y": worker_axis(workers),
                "x": time_axis("began"),
                "x2": {"field": "ended"},
                "color": colours("outcome", names, chosen, frame),
                "description": {"field": "says"},
            },
        }

    return Chart(
        name="timeline",
        title="What each worker did",
        summary=f"Each bar is {what}, on the line of its worker.{note}",
        spec=spec,
    )


def load_chart(loads: Sequence[Load]) -> Chart:
    """Return the chart of the load of the NUMA nodes."""
    nodes = sorted({node for _, node, _ in loads}, key=_number)
    few = len(nodes) <= len(LINE_COLOURS)
    lines = [f"node {node}" for node in nodes] if few else ["busiest node", "mean", "idlest node"]
    values = [
        {
            "at": at,
            "line": line,
            "share": share,
            "says": f"{line}: {share:.0%} busy at {figures.seconds(at)}",
        }
        for at, line, share in _lines(loads, few)
    ]
    highest = max(share for _, _, share in loads)
    many = (
        ""
        if few
        else f" Of {len(nodes)} nodes, only the busiest, the idlest and the mean are shown."
    )

    def spec(frame: Frame) -> Spec:
        return {
            "data": {"values": values},
            "height": 180,
            "encoding": {
                "x": time_axis("at"),
                "y": quantity("share", "CPUs busy", ".0%", scale={"domain": [0, 1]}),
                "color": colours("line", lines, LINE_COLOURS, frame),
            },
            "layer": [
                {"mark": {"type": "line", "strokeWidth": 2, "aria": False}},
                {
                    "mark": {"type": "point", "size": 90, "filled": True, "opacity": 0},
                    "encoding": {"description": {"field": "says"}},
                },
            ],
        }

    return Chart(
        name="load",
        title="Load of the NUMA nodes",
        summary="The busy part of the CPUs that the run might use, by all processes of the "
        f"machine; at most {highest:.0%}.{many}",
        spec=spec,
    )


def time_axis(field: str) -> Spec:
    """Return the encoding of the time since a run began."""
    return quantity(field, "seconds since the run began", ",~f", scale={"domainMin": 0})


def worker_axis(workers: int) -> Spec:
    """Return the encoding of a line for each worker."""
    every = -(-workers // MOST_WORKERS_NAMED)
    shown = {} if every == 1 else {"labelExpr": f"datum.value % {every} ? '' : datum.label"}
    return {
        "field": "worker",
        "type": "ordinal",
        "title": "worker",
        "axis": {"grid": False, **shown},
    }


def rows_height(rows: int) -> int:
    """Return the height of a chart with a number of rows: up to about a screen."""
    return max(40, min(rows * 22, 700))


def _says(bar: Bar) -> str:
    several = f"{bar.units} units {bar.unit}-{bar.last_unit}"
    units = f"unit {bar.unit}" if bar.units == 1 else several
    partition = f", partition {bar.partition}" if bar.partition else ""
    attempt = f", attempt {bar.attempt}" if bar.attempt > 1 else ""
    rows = f"failed: {bar.message}" if bar.outcome == "failed" else f"{bar.rows:,} rows"
    time = f"{figures.seconds(bar.seconds)} from {figures.seconds(bar.started_s)} on"
    return f"worker {bar.worker}, {units}{partition}{attempt}: {rows}, {time}"


def _lines(loads: Sequence[Load], few: bool) -> Iterator[Load]:
    if few:
        yield from ((at, f"node {node}", share) for at, node, share in loads)
        return
    moments: dict[float, list[float]] = defaultdict(list)
    for at, _, share in loads:
        moments[at].append(share)
    for at, shares in moments.items():
        yield at, "busiest node", max(shares)
        yield at, "mean", sum(shares) / len(shares)
        yield at, "idlest node", min(shares)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else -1


_SPEED_COLOUR, _STEPS_COLOUR = "var(--blue)", "var(--amber)"


def speed_chart(report: RunReport) -> Chart:
    """Return the chart of the rows per second over time, and of the workers where they changed.

    Args:
        report: Of a run with at least one sample.
    """
    values = [
        {
            "at": sample.at_s,
            "rate": sample.rows_per_second,
            "says": f"{figures.rows_per_second(sample.rows_per_second)} at "
            f"{figures.seconds(sample.at_s)}, {counted(sample.busy_workers, 'worker')} busy",
        }
        for sample in report.samples
    ]
    best = max(report.samples, key=lambda sample: sample.rows_per_second)
    steps = _step_values(report)

    def spec(frame: Frame) -> Spec:
        speed = {
            "data": {"values": values},
            "encoding": {"y": quantity("rate", "rows/s")},
            "layer": _speed_layers(),
        }
        return {
            "height": 220 if steps else 200,
            "encoding": {"x": time_axis("at")},
            "layer": [speed, *([_workers(steps, frame)] if steps else [])],
            "resolve": {"scale": {"y": "independent"}},
        }

    more = (
        " The yellow line, with the axis at the right, is the intended number of workers; each "
        "of its points is a change, which the table below explains."
    )
    return Chart(
        name="speed",
        title="Rows per second",
        summary=f"The fastest moment was {figures.rows_per_second(best.rows_per_second)}, "
        f"{figures.seconds(best.at_s)} after the start. Rows count when they are encoded."
        + (more if steps else ""),
        spec=spec,
    )


def _speed_layers() -> list[Spec]:
    along = {"interpolate": "step-before", "color": _SPEED_COLOUR, "aria": False}
    return [
        {"mark": {"type": "area", "opacity": 0.15, **along}},
        {"mark": {"type": "line", "strokeWidth": 2, **along}},
        {
            # Not seen; it tells the mouse the figure of each place of the line.
            "mark": {
                **{"type": "point", "size": 90, "filled": True},
                **{"color": _SPEED_COLOUR, "opacity": 0},
            },
            "encoding": {"description": {"field": "says"}},
        },
    ]


def _step_values(report: RunReport) -> list[dict[str, Any]]:
    """Return the changes of the number of workers, and the number at the end of the samples."""
    if not report.steps:
        return []
    values = [
        {"at": step.at_s, "workers": step.workers, "says": _step_says(step)}
        for step in report.steps
    ]
    last, end = report.steps[-1], report.samples[-1].at_s
    if end > last.at_s:
        values.append({"at": end, "workers": last.workers, "says": ""})
    return values


def _step_says(step: StepLine) -> str:
    since = f"{figures.workers(step.workers)} from {figures.seconds(step.at_s)} on"
    return f"{since}, {step.cause}: {step.reason}"


def _workers(steps: list[dict[str, Any]], frame: Frame) -> Spec:
    most = max(each["workers"] for each in steps)
    axis = {
        **{"orient": "right", "format": "d", "tickMinStep": 1, "tickCount": min(most, 5)},
        **{"grid": False, "titleColor": _STEPS_COLOUR},
    }
    return {
        "data": {"values": steps},
        "encoding": {
            "y": quantity("workers", "workers", scale={"domain": [0, most * 1.1], "nice": False})
            | {"axis": axis}
        },
        "layer": [
            {
                "mark": {
                    **{"type": "line", "interpolate": "step-after", "strokeWidth": 2},
                    **{"color": _STEPS_COLOUR, "aria": False},
                }
            },
            {
                "transform": [{"filter": "datum.says != ''"}],
                "mark": {
                    **{"type": "point", "filled": True, "opacity": 1},
                    **{"size": frame.pick(70, 50), "color": _STEPS_COLOUR},
                },
                "encoding": {"description": {"field": "says"}},
            },
        ],
    }
