"""The charts of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from unloader.manifest.model import StagesRecord
from unloader.report import figures
from unloader.report.charts.chart import (
    STAGE_COLOURS,
    STAGES,
    Chart,
    Frame,
    Spec,
    colours,
    quantity,
)
from unloader.report.charts.over_time import (
    load_chart,
    rows_height,
    timeline_chart,
    worker_axis,
)
from unloader.report.charts.speed import efficiency_chart, speed_chart
from unloader.report.model import RunReport

MOST_STACKS = 30


def run_charts(report: RunReport) -> Iterator[Chart]:
    """Yield the charts that there is something to show of."""
    if report.efficiency is not None and report.efficiency.parts:
        yield efficiency_chart(report.efficiency)
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
    if report.slowest:
        yield _unit_stages(report)


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
    rows = [(each.worker, f"worker {each.worker}", each.stages) for each in report.workers]
    workers = len(rows)
    return _stacked(
        name="worker-stages",
        title="Stages, by worker",
        summary="Wall seconds of each stage over all units of a worker. Stages overlap, so their "
        "sum may be longer than the worker's time. The longest stage limits the worker.",
        values=list(_stage_values(rows)),
        axis=worker_axis(workers),
        height=rows_height(workers),
    )


def _unit_stages(report: RunReport) -> Chart:
    shown = report.slowest[:MOST_STACKS]
    rows = [(each.unit, f"unit {each.unit}", each.stages) for each in shown]
    which = "all units" if len(shown) == report.spread.units else f"the {len(shown)} slowest units"
    return _stacked(
        name="unit-stages",
        title="Stages, by unit",
        summary=f"Wall seconds of each stage of {which} of {report.spread.units:,}, the slowest "
        "first.",
        values=list(_stage_values(rows)),
        axis={
            "field": "worker",
            "type": "ordinal",
            "title": "unit",
            "sort": [unit for unit, _, _ in rows],
            "axis": {"grid": False, "labelLimit": 90},
        },
        height=rows_height(len(shown)),
    )


def _stage_values(
    rows: Sequence[tuple[int | str, str, StagesRecord]],
) -> Iterator[dict[str, Any]]:
    for key, label, stages in rows:
        for place, stage in enumerate(STAGES):
            seconds = getattr(stages, f"{stage}_s")
            says = f"{label}, {stage}: {figures.seconds(seconds)}"
            yield {"worker": key, "stage": stage, "s": seconds, "place": place, "says": says}


def _stacked(
    *, name: str, title: str, summary: str, values: list[dict[str, Any]], axis: Spec, height: int
) -> Chart:
    def spec(frame: Frame) -> Spec:
        return {
            "data": {"values": values},
            "height": height,
            "mark": {"type": "bar", "stroke": "var(--card)", "strokeWidth": 1},
            "encoding": {
                "y": axis,
                "x": quantity("s", "seconds", ",~f", stack="zero"),
                "order": {"field": "place", "type": "quantitative"},
                "color": colours("stage", STAGES, STAGE_COLOURS, frame),
                "description": {"field": "says"},
            },
        }

    return Chart(name=name, title=title, summary=summary, spec=spec)
