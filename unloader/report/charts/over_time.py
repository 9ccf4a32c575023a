"""Charts along the time of a run: what each worker did, and how busy the nodes were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from unloader.report import figures
from unloader.report.charts.chart import (
    LINE_COLOURS,
    Chart,
    Frame,
    Spec,
    colours,
    quantity,
)
from unloader.report.model import Bar

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
        units_per_bar: Most units that one of them stands for.
        note: What else is to be said of it.
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
    """Return the height of a chart with a line for each of so many: up to about a screen."""
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
