"""The pages of `unloader preflight`, `unloader size` and `unloader sweep`, as plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unloader.cli.display import render
from unloader.cli.display.render import folded, folded_facts, terminal_width
from unloader.nouns import counted
from unloader.tuning.analysis import CONFIDENCE, NO_CPU, Analysis, LevelChoice, MeasuredLevel, Work
from unloader.tuning.sizing import shown as shown_number
from unloader.tuning.sweep_document import Curve, Measurement, PointReport, SweepDocument, label

if TYPE_CHECKING:
    from unloader.tuning.ceilings import (
        Ceilings,
        CodecCeiling,
        ConnectionCeiling,
        DiskCeiling,
        EncoderCeiling,
        SourceLevel,
    )
    from unloader.tuning.machine_load import MachineLoad
    from unloader.tuning.sizing import Needed, Sizing, Space, Step


def preflight_page(found: Ceilings) -> str:
    """Return all measurements, part by part, and the missing ones with the reason."""
    return "\n\n".join(part for part in _preflight_parts(found) if part)


def _preflight_parts(found: Ceilings) -> Iterator[str]:
    machine = found.machine
    yield folded_facts(
        (
            ("machine", f"{machine.name}, {machine.cores} cores, {machine.cpus} CPUs usable"),
            ("processor", machine.model or render.UNKNOWN),
            ("workers of a run", render.count(found.parallelism)),
            ("writing", _writing(found)),
        ),
        terminal_width(),
    )
    disks = (*found.disks, *((found.together,) if found.together else ()))
    if disks:
        yield render.table(
            ("disk", ">files at once", ">written", ">MB/s", ">lowest", ">highest", "file system"),
            map(_disk, disks),
        )
    if found.source is not None:
        yield render.table(
            (
                ">workers",
                ">rows/s",
                ">MB/s",
                ">rows/s per worker",
                ">network MB/s",
                ">CPU s per million rows",
            ),
            map(_level, found.source.levels),
        )
    if found.encoder is not None:
        yield _encoder(found.encoder)
    if found.connection is not None:
        yield _connection(found.connection)
    if found.not_measured:
        yield render.table(
            ("not measured", "reason"), ((each.what, each.reason) for each in found.not_measured)
        )


def _writing(found: Ceilings) -> str:
    how = found.writing
    past = ", without the page cache" if how.direct_io else ""
    return (
        f"{how.overlap_buffers} buffers of {render.size(how.overlap_buffer)}, {how.checksum}, "
        f"each file synced{past}"
    )


def _disk(disk: DiskCeiling) -> tuple[str, ...]:
    mounts = dict.fromkeys(f"{each.type} on {each.point}" for each in disk.mounts if each)
    return (
        " + ".join(disk.directories),
        str(disk.writers),
        render.size(disk.bytes),
        _megabytes(disk.bytes_per_second),
        _megabytes(disk.lowest),
        _megabytes(disk.highest),
        ", ".join(mounts) or render.UNKNOWN,
    )


def _level(level: SourceLevel) -> tuple[str, ...]:
    million = level.cpu_seconds / level.rows * 1e6
    return (
        str(level.parallelism),
        f"{level.rows_per_second:,.0f}",
        _megabytes(level.bytes_per_second),
        f"{level.rows_per_second / level.parallelism:,.0f}",
        _megabytes(level.network_bytes_per_second),
        f"{million:.2f}",
    )


def _encoder(found: EncoderCeiling) -> str:
    rate = found.bytes_per_cpu_second
    shown = f"{render.megabytes_per_second(rate)} per core" if rate else render.UNKNOWN
    sample = f"{counted(found.sample_rows, 'row')} of {found.row_bytes:.1f} bytes on average"
    lines = render.facts(
        ((f"{found.format} encoder", shown), ("sample", f"{sample}, before compression"))
    )
    table = render.table(("codec", ">ratio", ">MB/s per core"), map(_codec, found.codecs))
    return f"{lines}\n\n{table}"


def _codec(codec: CodecCeiling) -> tuple[str, ...]:
    level = "" if codec.level is None else f":{codec.level}"
    return (f"{codec.codec}{level}", f"{codec.ratio:.3f}", _megabytes(codec.bytes_per_cpu_second))


def _connection(found: ConnectionCeiling) -> str:
    return render.facts(
        (
            (
                "round trip",
                f"{_milliseconds(found.round_trip_seconds)} (median of {found.statements} "
                "small statements)",
            ),
            ("network round trip", _milliseconds(found.network_round_trip_seconds)),
            ("one connection", render.megabytes_per_second(found.bytes_per_second)),
            ("all connections", render.megabytes_per_second(found.all_bytes_per_second)),
        )
    )


def _milliseconds(seconds: float | None) -> str:
    return render.UNKNOWN if seconds is None else f"{seconds * 1000:.3f} ms"


def _megabytes(rate: float | None) -> str:
    return render.UNKNOWN if rate is None else f"{rate / 1e6:,.1f}"


def size_page(found: Sizing) -> str:
    """Return the answer, its basis, and the arithmetic line by line."""
    return "\n\n".join(part for part in _size_parts(found) if part)


def _size_parts(found: Sizing) -> Iterator[str]:
    yield "\n".join(folded(found.answer, terminal_width()))
    if found.needed is not None:
        yield render.facts(_needed(found.needed))
    yield render.table(
        ("format", "codec", ">space", ">MB/s", ">disks", ">cores to compress"),
        map(_space, found.space),
    )
    table = render.table(("step", ">value", "unit", "arithmetic"), map(_step, found.steps))
    yield f"{table}\n\nvalues are rounded to six digits, and the arithmetic uses the rounded values"
    yield render.facts(
        (
            *(("measured", each) for each in found.origins),
            *(("assumed", each) for each in found.assumptions),
            *((f"no {each.what}", each.reason) for each in found.unknown),
        )
    )


def _needed(needed: Needed) -> Iterator[tuple[str, str]]:
    for name, value in (
        ("workers", needed.workers),
        ("cores", needed.cores),
        ("disks", needed.disks),
        ("network links", needed.network_links),
    ):
        if value is not None:
            yield name, render.count(value)
    if needed.network_gigabits_per_second is not None:
        rate = render.megabytes_per_second(needed.network_bytes_per_second)
        yield "network", f"{needed.network_gigabits_per_second:.3g} Gbit/s ({rate})"


def _space(space: Space) -> tuple[str, ...]:
    rate, extra = space.bytes_per_second, space.extra_cores
    return (
        space.format,
        space.codec,
        render.size(space.bytes),
        render.UNKNOWN if rate is None else f"{rate / 1e6:,.1f}",
        render.count(space.disks),
        render.UNKNOWN if extra is None else f"{extra:.2f}",
    )


def _step(step: Step) -> tuple[str, ...]:
    how = ", ".join(part for part in (step.formula, step.note) if part)
    return (step.what, shown_number(step.value), step.unit, how)


_HEADS = (
    ">workers",
    ">seconds",
    ">repeats",
    ">speed",
    ">of linear",
    ">CPU",
    "sustained",
    "remarks",
)


def analysis_text(found: Analysis) -> str:
    """Return the answer as text."""
    return "\n\n".join((render.table(_HEADS, _levels(found)), render.facts(_analysis_facts(found))))


def _levels(found: Analysis) -> Iterator[tuple[str, ...]]:
    outliers = {each.parallelism: each.reason for each in found.outlier_reasons}
    # What one worker would bring, as the smallest level that is in order has it.
    first = next(level for level in found.levels if not level.outlier)
    unmeasured = all(level.load.cpu is None for level in found.levels)
    for level in found.levels:
        hidden = (f"outlier: {outliers.get(level.parallelism)}", NO_CPU if unmeasured else "")
        remarks = [each for each in level.reasons if each not in hidden]
        if level.outlier:
            remarks.insert(0, f"OUTLIER: {outliers[level.parallelism]}")
        if not level.valid:
            remarks.insert(0, "NOT VALID")
        linear = first.seconds * first.parallelism / (level.seconds * level.parallelism)
        yield (
            f"{level.parallelism:,}",
            f"{level.seconds:,.6g}",
            str(level.repeats),
            _level_speed(level, found.work),
            f"{linear:.0%}",
            render.UNKNOWN if level.load.cpu is None else f"{level.load.cpu:.0%}",
            {True: "yes", False: "no", None: render.UNKNOWN}[level.sustained],
            "; ".join(remarks),
        )


def _level_speed(level: MeasuredLevel, work: Work) -> str:
    rate = level.work_per_second
    if work.unit == "bytes":
        return render.megabytes_per_second(rate)
    return render.rows_per_second(rate) if work.unit == "rows" else f"{rate * 3600:.4g} per hour"


def _analysis_facts(found: Analysis) -> Iterator[tuple[str, str]]:
    yield "knee", _knee(found)
    yield "outliers", ", ".join(map(str, found.outliers)) or "none"
    yield "recommended", _recommended(found)
    for doubt in found.doubts:
        yield "DOUBTFUL", doubt
    yield "sustained", _choice(found.sustained, "no level was measured below the CPU limit")
    yield "production", _choice(found.production, "no level is below the CPU limit")
    yield "limit below knee", found.limits.below_knee.text
    if found.limits.above_knee is not None:
        yield "limit above knee", found.limits.above_knee.text
    spread = (
        "from the repeats" if found.spread.measured else "assumed, because no level was repeated"
    )
    yield "spread", f"{_share(found)}, {spread}"


def _knee(found: Analysis) -> str:
    interval = found.knee_interval
    if found.knee is None:
        return interval.note
    high = "no upper bound" if interval.high is None else f"{interval.high:,}"
    return f"{counted(found.knee, 'worker')} ({CONFIDENCE:.0%} interval {interval.low:,} to {high})"


def _recommended(found: Analysis) -> str:
    level = found.level(found.recommended)
    if level is None:
        return "no level is valid"
    return (
        f"{counted(level.parallelism, 'worker')}, {level.seconds:,.4g} s (the fewest workers that "
        f"take at most {_share(found)} longer than the fastest level)"
    )


def _share(found: Analysis) -> str:
    return f"{found.spread.share:.1%}"


def _choice(choice: LevelChoice | None, otherwise: str) -> str:
    if choice is None:
        return otherwise
    return f"{counted(choice.parallelism, 'worker')}, {choice.seconds:,.4g} s ({choice.text})"


def sweep_text(found: SweepDocument) -> str:
    """Return the text for a terminal: the points, and the answer of each curve."""
    return "\n\n".join((_points(found), *map(_curve, found.curves)))


def _curve(each: Curve) -> str:
    head = f"{label(each.settings)}:\n\n" if each.settings else ""
    text = f"{head}{analysis_text(each)}"
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
    *(">read MB/s", ">write MB/s", ">queue", ">busiest node", ">memory"),
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
    return [
        *_settings(point, names),
        *(_percent(share) for share in (waits.source, waits.output, waits.cpu)),
        *(_percent(share) for share in (who.workers, who.parent, who.database, who.rest)),
        *map(_percent, how),
        *_disks(machine),
        _percent(max((node.busy for node in machine.nodes), default=None)),
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
