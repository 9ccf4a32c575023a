"""The pages of `unloader preflight`, `unloader size` and `unloader sweep`, as plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unloader.cli.display import render
from unloader.cli.display.render import folded, folded_facts, terminal_width
from unloader.nouns import counted
from unloader.tuning.analysis import CONFIDENCE, NO_CPU, Analysis, LevelChoice
from unloader.tuning.sizing import shown as shown_number
from unloader.tuning.sweep_document import PointReport, SweepDocument, label

if TYPE_CHECKING:
    from unloader.tuning.ceilings import Ceilings
    from unloader.tuning.sizing import Sizing


def preflight_page(found: Ceilings) -> str:
    """Return all measurements, part by part, and the missing ones with the reason."""
    return "\n\n".join(part for part in _preflight_parts(found) if part)


def _preflight_parts(found: Ceilings) -> Iterator[str]:
    machine, how = found.machine, found.writing
    past = ", without the page cache" if how.direct_io else ""
    buffers = f"{how.overlap_buffers} buffers of {render.size(how.overlap_buffer)}"
    yield folded_facts(
        (
            ("machine", f"{machine.name}, {machine.cores} cores, {machine.cpus} CPUs usable"),
            ("processor", machine.model or render.UNKNOWN),
            ("workers of a run", render.count(found.parallelism)),
            ("writing", f"{buffers}, {how.checksum}, each file synced{past}"),
        ),
        terminal_width(),
    )
    disks = (*found.disks, *((found.together,) if found.together else ()))
    if disks:
        yield render.table(
            ("disk", ">files at once", ">written", ">MB/s", ">lowest", ">highest", "file system"),
            (
                (
                    " + ".join(disk.directories),
                    str(disk.writers),
                    render.size(disk.bytes),
                    *map(_megabytes, (disk.bytes_per_second, disk.lowest, disk.highest)),
                    ", ".join(dict.fromkeys(f"{m.type} on {m.point}" for m in disk.mounts if m))
                    or render.UNKNOWN,
                )
                for disk in disks
            ),
        )
    if found.source is not None:
        yield render.table(
            (
                *(">workers", ">rows/s", ">MB/s", ">rows/s per worker", ">network MB/s"),
                ">CPU s per million rows",
            ),
            (
                (
                    str(level.parallelism),
                    f"{level.rows_per_second:,.0f}",
                    _megabytes(level.bytes_per_second),
                    f"{level.rows_per_second / level.parallelism:,.0f}",
                    _megabytes(level.network_bytes_per_second),
                    f"{level.cpu_seconds / level.rows * 1e6:.2f}",
                )
                for level in found.source.levels
            ),
        )
    encoder = found.encoder
    if encoder is not None:
        rate = encoder.bytes_per_cpu_second
        shown = f"{render.megabytes_per_second(rate)} per core" if rate else render.UNKNOWN
        rows = counted(encoder.sample_rows, "row")
        sample = f"{rows} of {encoder.row_bytes:.1f} bytes on average, before compression"
        yield render.facts(((f"{encoder.format} encoder", shown), ("sample", sample)))
        yield render.table(
            ("codec", ">ratio", ">MB/s per core"),
            (
                (
                    each.codec if each.level is None else f"{each.codec}:{each.level}",
                    f"{each.ratio:.3f}",
                    _megabytes(each.bytes_per_cpu_second),
                )
                for each in encoder.codecs
            ),
        )
    connection = found.connection
    if connection is not None:
        trip = _milliseconds(connection.round_trip_seconds)
        yield render.facts(
            (
                ("round trip", f"{trip} (median of {connection.statements} small statements)"),
                ("network round trip", _milliseconds(connection.network_round_trip_seconds)),
                ("one connection", render.megabytes_per_second(connection.bytes_per_second)),
                ("all connections", render.megabytes_per_second(connection.all_bytes_per_second)),
            )
        )
    if found.not_measured:
        yield render.table(
            ("not measured", "reason"), ((each.what, each.reason) for each in found.not_measured)
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
    needed = found.needed
    if needed is not None:
        counts = {
            "workers": needed.workers,
            "cores": needed.cores,
            "disks": needed.disks,
            "network links": needed.network_links,
        }
        facts = [(name, render.count(v)) for name, v in counts.items() if v is not None]
        if needed.network_gigabits_per_second is not None:
            rate = render.megabytes_per_second(needed.network_bytes_per_second)
            facts.append(("network", f"{needed.network_gigabits_per_second:.3g} Gbit/s ({rate})"))
        yield render.facts(facts)
    yield render.table(
        ("format", "codec", ">space", ">MB/s", ">disks", ">cores to compress"),
        (
            (
                space.format,
                space.codec,
                render.size(space.bytes),
                _megabytes(space.bytes_per_second),
                render.count(space.disks),
                _number(space.extra_cores, "{:.2f}"),
            )
            for space in found.space
        ),
    )
    table = render.table(
        ("step", ">value", "unit", "arithmetic"),
        (
            (
                step.what,
                shown_number(step.value),
                step.unit,
                ", ".join(part for part in (step.formula, step.note) if part),
            )
            for step in found.steps
        ),
    )
    yield f"{table}\n\nvalues are rounded to six digits, and the arithmetic uses the rounded values"
    yield render.facts(
        (
            *(("measured", each) for each in found.origins),
            *(("assumed", each) for each in found.assumptions),
            *((f"no {each.what}", each.reason) for each in found.unknown),
        )
    )


_HEADS = (
    *(">workers", ">seconds", ">repeats", ">speed", ">of linear", ">CPU"),
    *("sustained", "remarks"),
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
        rate = level.work_per_second
        speed = f"{rate * 3600:.4g} per hour"
        if found.work.unit != "table":
            is_bytes = found.work.unit == "bytes"
            speed = (render.megabytes_per_second if is_bytes else render.rows_per_second)(rate)
        yield (
            f"{level.parallelism:,}",
            f"{level.seconds:,.6g}",
            str(level.repeats),
            speed,
            f"{linear:.0%}",
            _percent(level.load.cpu),
            {True: "yes", False: "no", None: render.UNKNOWN}[level.sustained],
            "; ".join(remarks),
        )


def _analysis_facts(found: Analysis) -> Iterator[tuple[str, str]]:
    interval, share = found.knee_interval, f"{found.spread.share:.1%}"
    knee = interval.note
    if found.knee is not None:
        high = "no upper bound" if interval.high is None else f"{interval.high:,}"
        knee = counted(found.knee, "worker")
        knee += f" ({CONFIDENCE:.0%} interval {interval.low:,} to {high})"
    yield "knee", knee
    yield "outliers", ", ".join(map(str, found.outliers)) or "none"
    level, recommended = found.level(found.recommended), "no level is valid"
    if level is not None:
        recommended = (
            f"{counted(level.parallelism, 'worker')}, {level.seconds:,.4g} s (the fewest workers "
            f"that take at most {share} longer than the fastest level)"
        )
    yield "recommended", recommended
    for doubt in found.doubts:
        yield "DOUBTFUL", doubt
    yield "sustained", _choice(found.sustained, "no level was measured below the CPU limit")
    yield "production", _choice(found.production, "no level is below the CPU limit")
    yield "limit below knee", found.limits.below_knee.text
    if found.limits.above_knee is not None:
        yield "limit above knee", found.limits.above_knee.text
    assumed = "from the repeats"
    if not found.spread.measured:
        assumed = "assumed, because no level was repeated"
    yield "spread", f"{share}, {assumed}"


def _choice(choice: LevelChoice | None, otherwise: str) -> str:
    if choice is None:
        return otherwise
    return f"{counted(choice.parallelism, 'worker')}, {choice.seconds:,.4g} s ({choice.text})"


def sweep_text(found: SweepDocument) -> str:
    """Return the text for a terminal: the points, and the answer of each curve."""
    return "\n\n".join(_sweep_parts(found))


def _sweep_parts(found: SweepDocument) -> Iterator[str]:
    names = list(dict.fromkeys(name for point in found.points for name in point.settings))
    heads = [f">{name}" for name in names]
    rows = [
        (point, [point.settings.get(name, render.UNKNOWN) for name in names])
        for point in found.points
    ]
    yield render.table(
        (*heads, *_SPEED_HEADS), ([*settings, *_speed(point)] for point, settings in rows)
    )
    yield render.table(
        (*heads, *_LOAD_HEADS),
        ([*settings, *_load(point)] for point, settings in rows if point.measurements),
    )
    problems = [f"{label(each.settings)}: {each.problem}" for each in found.points if each.problem]
    if problems:
        yield "\n".join(problems)
    yield render.facts(_facts(found))
    for curve in found.curves:
        if curve.settings:
            yield f"{label(curve.settings)}:"
        yield analysis_text(curve)
        whole = curve.whole_table
        if whole is not None:
            seconds = f"{whole.seconds:,.4g} s with {counted(whole.parallelism, 'worker')}"
            rows_read = f"{seconds}, for {counted(whole.rows, 'row')}"
            yield render.facts((("whole table", rows_read),))


_SPEED_HEADS = (
    *(">seconds", ">rows/s", ">MB/s", ">spread", ">runs"),
    *(">fetch", ">encode", ">compress", ">write", ">rest", ">CPU s/M rows"),
    *(">queued s", "state"),
)

_LOAD_HEADS = (
    *(">for source", ">for output", ">for CPU"),
    *(">workers", ">parent", ">database", ">others"),
    *(">all CPUs", ">busiest node", ">disk", ">network", ">memory"),
)


def _speed(point: PointReport) -> list[str]:
    each = point.median
    if each is None:
        return [*[render.UNKNOWN] * (len(_SPEED_HEADS) - 1), point.state]
    costs = each.costs
    stages = (costs.fetch, costs.encode, costs.compress, costs.write, costs.rest, costs.total)
    return [
        f"{each.seconds:.1f}",
        _number(point.rows_per_second, "{:,.0f}"),
        _megabytes(each.bytes_per_second),
        _percent(point.spread, 1),
        str(len(point.measurements)),
        *(_number(cost, "{:.2f}") for cost in stages),
        _number(each.load.queued, "{:.2f}"),
        point.state,
    ]


def _load(point: PointReport) -> list[str]:
    each = point.median
    if each is None:
        return [render.UNKNOWN] * len(_LOAD_HEADS)
    load = each.load
    peak = load.memory_bytes or each.peak_worker_bytes
    return [
        *map(_percent, (load.source, load.output, load.delay)),
        *map(_percent, (load.workers, load.parent, load.database, load.others)),
        *map(_percent, (load.cpu, load.node, load.disk, load.network)),
        render.UNKNOWN if peak is None else render.size(peak),
    ]


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
