"""The chart of how fast a run was over time, with its changes of parallelism."""

from __future__ import annotations

from typing import Any

from unloader.nouns import counted
from unloader.report import figures
from unloader.report.charts.chart import Chart, Frame, Spec, quantity
from unloader.report.charts.over_time import time_axis
from unloader.report.model import RunReport, StepLine

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
        {"at": step.at_s, "workers": step.workers, "says": _says(step)} for step in report.steps
    ]
    last, end = report.steps[-1], report.samples[-1].at_s
    if end > last.at_s:
        values.append({"at": end, "workers": last.workers, "says": ""})
    return values


def _says(step: StepLine) -> str:
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
