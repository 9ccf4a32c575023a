"""The charts of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from unloader.model import Stages
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
from unloader.report.charts.speed import speed_chart
from unloader.report.model import RunReport


def run_charts(report: RunReport) -> Iterator[Chart]:
    """Yield the charts that there is something to show of."""
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


def _stage_values(
    rows: Sequence[tuple[int | str, str, Stages]],
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
