"""The points of a sweep as a table, and its other facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unloader.cli.display import render
from unloader.cli.display.sweeps import answer
from unloader.nouns import counted
from unloader.tuning.sweep_document import label

if TYPE_CHECKING:
    from unloader.tuning.machine_load import MachineLoad
    from unloader.tuning.sweep_document import Curve, Measurement, PointReport, SweepDocument


def shown(found: SweepDocument) -> str:
    """Return the text for a terminal: the points, and the answer of each curve."""
    return "\n\n".join((_points(found), *map(_answer, found.curves)))


def _answer(each: Curve) -> str:
    head = f"{label(each.settings)}:\n\n" if each.settings else ""
    text = f"{head}{answer.shown(each)}"
    whole = each.whole_table
    if whole is None:
        return text
    seconds = f"{whole.seconds:,.4g} s with {counted(whole.parallelism, 'worker')}"
    rows = f"{seconds}, for {counted(whole.rows, 'row')}"
    return f"{text}\n\n{render.facts((('whole table', rows),))}"


def _points(report: SweepDocument) -> str:
    names = list(dict.fromkeys(name for point in report.points for name in point.settings))
    measured = [point for point in report.points if point.measurements]
    parts = [
        render.table(
            (*(f">{name}" for name in names), *_SPEED_HEADS),
            (_speed(point, names) for point in report.points),
        ),
        render.table(
            (*(f">{name}" for name in names), *_LOAD_HEADS),
            (_load(point, names) for point in measured),
        ),
        render.facts(_facts(report)),
    ]
    problems = [
        f"{label(point.settings)}: {point.problem}" for point in report.points if point.problem
    ]
    return "\n\n".join((*parts[:-1], *(["\n".join(problems)] if problems else []), parts[-1]))


_SPEED_HEADS = (
    *(">seconds", ">rows/s", ">MB/s", ">spread", ">runs"),
    *(">fetch", ">encode", ">compress", ">write", ">rest", ">CPU s/M rows"),
    *(">queued s", "state"),
)

_LOAD_HEADS = (
    *(">for source", ">for output", ">for CPU"),
    *(">workers", ">parent", ">database", ">others"),
    *(">user", ">system", ">iowait", ">idle"),
    *(">read MB/s", ">write MB/s", ">queue", ">busiest node", ">GHz", ">memory"),
)


def _settings(point: PointReport, names: list[str]) -> list[str]:
    return [point.settings.get(name, render.UNKNOWN) for name in names]


def _speed(point: PointReport, names: list[str]) -> list[str]:
    each = point.median
    if each is None:
        return [*_settings(point, names), *[render.UNKNOWN] * (len(_SPEED_HEADS) - 1), point.state]
    costs, queued = each.costs, each.queueing.longest_seconds
    return [
        *_settings(point, names),
        f"{each.seconds:.1f}",
        _number(point.rows_per_second, "{:,.0f}"),
        f"{each.bytes_per_second / 1e6:,.1f}",
        _percent(point.spread, 1),
        str(len(point.measurements)),
        *(
            _number(cost, "{:.2f}")
            for cost in (
                *(costs.fetch, costs.encode, costs.compress, costs.write),
                *(costs.rest, costs.total),
            )
        ),
        _number(queued, "{:.2f}"),
        point.state,
    ]


def _load(point: PointReport, names: list[str]) -> list[str]:
    each = point.median
    machine = each.machine if each is not None else None
    if each is None or machine is None:
        return [*_settings(point, names), *[render.UNKNOWN] * len(_LOAD_HEADS)]
    who, cpu, waits = machine.processes, machine.cpu, each.waits
    how = (None,) * 4 if cpu is None else (cpu.user, cpu.system, cpu.iowait, cpu.idle)
    clock = None if machine.clock_mhz is None else machine.clock_mhz / 1000
    return [
        *_settings(point, names),
        *(_percent(share) for share in (waits.source, waits.output, waits.cpu)),
        *(_percent(share) for share in (who.workers, who.parent, who.database, who.rest)),
        *map(_percent, how),
        *_disks(machine),
        _percent(max((node.busy for node in machine.nodes), default=None)),
        _number(clock, "{:.2f}"),
        _memory(each, machine),
    ]


def _disks(machine: MachineLoad) -> Iterator[str]:
    """Yield the rates of all disks together, and the longest queue."""
    disks = machine.disks
    yield _number(sum(d.read_bytes_per_second for d in disks) / 1e6, "{:,.1f}")
    yield _number(sum(d.write_bytes_per_second for d in disks) / 1e6, "{:,.1f}")
    queues = [disk.queue for disk in disks if disk.queue is not None]
    yield _number(max(queues, default=None), "{:.1f}")


def _memory(each: Measurement, machine: MachineLoad) -> str:
    peak = machine.peak_memory_bytes or each.peak_worker_bytes
    return render.UNKNOWN if peak is None else render.size(peak)


def _facts(report: SweepDocument) -> Iterator[tuple[str, str]]:
    yield "table", render.name(report.subject)
    yield "written to", report.destination
    taken = report.sample
    if taken is not None:
        rows = "" if taken.rows is None else f", about {counted(taken.rows, 'row')}"
        yield (
            "sample",
            f"{taken.units} of {counted(taken.of_units, 'work unit')} ({taken.share:.1%}){rows}",
        )
    if report.options.seconds is not None:
        yield "time", f"at most {report.options.seconds:g} s for each measurement"
    yield (
        "order",
        f"{report.options.repeats} rounds, random order of seed {report.options.seed}, "
        f"{report.options.warm_up} warm-up",
    )
    yield "caches", report.caches
    if report.interrupted:
        yield "interrupted", "by a signal; points without figures were not measured"


def _percent(share: float | None, digits: int = 0) -> str:
    return render.UNKNOWN if share is None else f"{share * 100:.{digits}f}%"


def _number(value: float | None, form: str) -> str:
    return render.UNKNOWN if value is None else form.format(value)
