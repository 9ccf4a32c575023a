"""`unloader sweep`: how speed grows with the workers, where it bends, and what to use."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from numa.model import TopologyError
from numa.topology import detect
from unloader.cli.commands.jobs import toml
from unloader.cli.display import render
from unloader.cli.display.render import megabytes
from unloader.cli.options import rules
from unloader.cli.options.command import JobOption, declared, given, given_values, on_command_line
from unloader.cli.options.request_of import connect_to, request_of
from unloader.cli.options.source_argument import SourceArgument, source_argument
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import check_report, display_for, write_report
from unloader.errors import (
    ConfigError,
    FollowUpFailed,
    Interrupted,
    OutputFailed,
    UnloaderError,
    UsageError,
)
from unloader.nouns import counted
from unloader.redaction import holds_sql_password
from unloader.request.options import AXES, POINTS, options_of
from unloader.storage.storage_protocol import MANIFEST
from unloader.tuning.analysis import CONFIDENCE, MOST_LEVELS, NO_CPU, Analysis, Rules, analyse
from unloader.tuning.live_sweep import sweep as measure
from unloader.tuning.points import read_points
from unloader.tuning.sweep_document import SweepDocument, SweepOptions, Variant, points_csv
from unloader.tuning.sweep_document import label as settings_text
from writers import registry
from writers.errors import FormatError, WriteError
from writers.files.publish import write_atomically
from writers.model import Compression

JOB_SUFFIX = ".toml"
"""By it `unloader run` knows a job file."""

_PASSWORD = "password-"
"""First letters of the options about the source of the password."""

_OF_A_SWEEP = (POINTS, "Analysis")
_OF_A_CALL = "Display"
"""Section of the options about the display of one call."""

MOST_POINTS = 500


@declared(
    "sweep",
    "Measure several numbers of workers, and recommend one.",
    """
    unloader sweep oracle://scott@db01:1521/SALES --table ORDERS \\
        --to /extract/sweep --parallelism 32..4:-4,3,2 --sample 5%
    unloader sweep --replay points.csv
    unloader sweep postgresql://etl@db01/sales --table public.orders --to null: \\
        --parallelism 1,2,4,8 --compression none,lz4,zstd --seconds 30
    unloader sweep oracle://scott@db01:1521/SALES --table ORDERS \\
        --to /extract/sweep --sample 5% --report sweep.html --job orders.toml
    unloader sweep --replay points.csv --json
    """,
)
@source_argument(plans=False, required=False)
@click.pass_context
def sweep(context: click.Context, /, argument: SourceArgument, **values: Any) -> None:
    """Find the parallelism beyond which speed stops growing, and recommend one.

    The points are measured on SOURCE, or read from the file of --replay. Each point is a separate
    run into a separate directory, which is removed. An option with several values makes a point of
    each value with each parallelism.

    The answer has the knee with its interval, and levels that are outliers. It shows the limits of
    the speed on both sides of the knee, and the recommended parallelism.
    """
    found: Analysis
    if values["replay"] is None:
        if not argument.url:
            raise UsageError(
                "sweep has no points to analyse", "give a source, or a file of points with --replay"
            )
        found = measured = _measured(context, argument, values)
        if values["csv"]:
            _write(Path(values["csv"]), points_csv(measured), "--csv")
        render.answer(values, found, lambda: "\n\n".join(_sweep_parts(measured)))
    else:
        found = _replayed(context, argument, values)
        render.answer(values, found, lambda: _analysis_text(found))
    render.notices(() if values["quiet"] else found.notices)
    try:
        if values["report"]:
            write_report(values["report"], found)
        if isinstance(found, SweepDocument) and found.interrupted:
            raise Interrupted(
                "the sweep was stopped by a signal before all points were measured",
                "only measured points are shown; sweep again for the rest",
            )
        if isinstance(found, SweepDocument) and values["job"]:
            path = Path(context.params["job"])
            if "parallelism" not in found.recommended_options:
                raise FollowUpFailed(
                    f"{path} is not written: the sweep recommends no parallelism",
                    "see the levels and notices of its answer",
                )
            lines = [
                "# Recommended by unloader sweep. Run it with: unloader run FILE",
                *(f"# Doubtful: {doubt}" for doubt in found.doubts),
                f"source = {toml(argument.url)}",
            ]
            known = {option.key: option for option in options_of("run")}
            format_name = found.recommended_options.get("format") or context.params["format"][0]
            for parameter, value in given_values(context):
                declared = parameter.declared
                option = known.get(declared.key)
                # Some options of a sweep have the name of another option of run, such as --report.
                if option is None or (declared.group in _OF_A_SWEEP and declared.name not in AXES):
                    continue
                kept = option.kept or option.name.startswith(_PASSWORD)
                if not kept or option.group == _OF_A_CALL or not option.knows(format_name):
                    continue
                if option.name not in found.recommended_options:
                    lines.append(f"{option.name} = {toml(value)}")
            for name, text in found.recommended_options.items():
                if text != "default":
                    lines.append(f"{name} = {text if name == 'parallelism' else toml(text)}")
            _write(path, "\n".join(lines) + "\n", "--job")
    except UnloaderError as error:
        if not values["json"]:
            raise
        # The answer is the one JSON object of a call, so that an error gets none.
        click.echo(f"unloader: error: {error}", err=True)
        context.exit(error.exit_code)


def _replayed(
    context: click.Context, argument: SourceArgument, values: Mapping[str, Any]
) -> Analysis:
    if argument.url:
        raise UsageError(
            "--replay takes its points from a file, and a source is given, too",
            "leave one of the two out",
        )
    for option in context.command.params:
        if not isinstance(option, JobOption) or option.name not in on_command_line(context):
            continue
        if option.group not in ("Analysis", "Display"):
            raise UsageError(
                f"{option.opts[0]} is for measuring, and --replay takes its points from a file",
                "leave one of the two out",
            )
    if values["replay"] == "":
        raise UsageError("--replay is empty", "name a file of points")
    if values["report"] is not None:
        check_report(values["report"])
    file = read_points(Path(values["replay"]))
    for name in AXES:
        # A knee of several curves together means nothing.
        settings = dict.fromkeys(each[name] for each in file.others if each.get(name))
        if len(settings) > 1:
            raise ConfigError(
                f"{values['replay']} has points of several curves: {name} is {', '.join(settings)}",
                "keep the lines of one curve in each file",
            )
    found = analyse(file.points, _rules(values))
    return replace(found, notices=(*file.notices, *found.notices))


def _measured(
    context: click.Context, argument: SourceArgument, values: Mapping[str, Any]
) -> SweepDocument:
    if not values["to"]:
        raise UsageError(
            "the points have no destination",
            "give a directory with --to, or --to null: to drop the output",
        )
    for name in ("csv", "job"):
        path = Path(values[name]) if values[name] else None
        if path is None:
            continue
        if path.is_dir() or not path.absolute().parent.is_dir() or path.name == MANIFEST:
            raise OutputFailed(
                f"--{name} cannot be written to {path}", "give a file in a directory that is there"
            )
    if values["job"]:
        if not str(values["job"]).lower().endswith(JOB_SUFFIX):
            raise UsageError(
                f"--job {values['job']} would not be recognized as a job file",
                f"end its name with {JOB_SUFFIX}",
            )
        if any(map(holds_sql_password, values["session_sql"])):
            raise UsageError(
                "--job would keep the password of a --session-sql in the job file",
                "leave --job out, and give run the same options",
            )
    if values["report"] is not None:
        check_report(values["report"])
    variants = _variants(context, values)
    # Of the options that vary a session knows none; the first point has one value of each.
    source = connect_to(argument.url, variants[0][1], given(context))
    points = [
        Variant(settings=settings, request=request_of(one, source), parallelism=one["parallelism"])
        for settings, one in variants
    ]
    options = SweepOptions(
        most_repeats=2 * values["repeats"],
        widest_spread=values["max_spread"],
        seconds=values["seconds"] or None,
        **{name: values[name] for name in ("repeats", "warm_up", "seed", "sample")},
    )
    with display_for(values) as display, stop_on_signals(display.stopping) as stop:
        return measure(points, options, rules=_rules(values), observe=display, stop=stop)


def _rules(values: Mapping[str, Any]) -> Rules:
    return Rules(
        spread=values["spread"],
        widest_spread=values["max_spread"],
        queue_seconds=values["queue_limit"],
        cpu_limit=values["cpu_limit"],
        discount=values["discount"],
    )


def _variants(
    context: click.Context, values: Mapping[str, Any]
) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """Return the settings of each point, as they are written, and its values of all options."""
    options = options_of("sweep")
    kinds = {each.key: each.kind for each in options}
    axes: dict[str, tuple[Any, ...]] = {"parallelism": values["parallelism"] or _usual_levels()}
    for name in AXES:
        key = name.replace("-", "_")
        axes[name] = kinds[key].read(values[key] or (None,))
    if len(axes["parallelism"]) > MOST_LEVELS:
        raise UsageError(
            f"there are more than {MOST_LEVELS} levels of parallelism", "give fewer --parallelism"
        )
    several_formats = len(axes["format"]) > 1
    found = []
    for combination in itertools.product(*axes.values()):
        chosen = dict(zip(axes, combination, strict=True))
        one = {**values, **{name.replace("-", "_"): value for name, value in chosen.items()}}
        one["verify"] = "none"
        names = given(context)
        if several_formats:
            codec = one["compression"]
            try:
                if isinstance(codec, Compression):
                    registry.check(one["format"], codec)
            except FormatError:
                continue
            # Options of another format of the sweep do not count as given.
            names -= {option.key for option in options if not option.knows(one["format"])}
        rules.validate(one, names)
        settings = {
            name: _written(kinds[name.replace("-", "_")], value)
            for name, value in chosen.items()
            if len(axes[name]) > 1 or name == "parallelism"
        }
        found.append((settings, one))
        if len(found) > MOST_POINTS:
            raise UsageError(
                f"there are more than {MOST_POINTS} points", "give fewer values of fewer options"
            )
    if not found:
        raise UsageError("no codec of --compression fits a --format", "give others")
    return found


def _written(kind: Any, value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, Compression):
        return value.label
    return str(kind.write((value,)) if kind.lists else value)


def _usual_levels() -> tuple[int, ...]:
    """Return 1, 2, 4 and so on up to the cores that may be used, these included."""
    try:
        most = detect().usable_cpus
    except TopologyError as error:
        raise ConfigError(error.message, "give the levels with --parallelism 1,2,4") from error
    levels = itertools.takewhile(lambda level: level < most, (2**at for at in itertools.count()))
    return (*levels, most)


def _write(path: Path, text: str, option: str) -> None:
    try:
        write_atomically(path.resolve(), text.encode("utf-8"))
    except WriteError as error:
        raise OutputFailed(
            f"{option} cannot be written: {error.message}", "give another file"
        ) from error


_LEVEL_HEADS = (
    *(">workers", ">seconds", ">repeats", ">speed", ">of linear", ">CPU"),
    *("sustained", "remarks"),
)
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


def _sweep_parts(found: SweepDocument) -> Iterator[str]:
    """Yield the points, and the answer of each curve."""
    names = list(dict.fromkeys(name for point in found.points for name in point.settings))
    heads = [f">{name}" for name in names]
    speeds, loads = [], []
    for point in found.points:
        settings = [point.settings.get(name) for name in names]
        each = point.median
        if each is None:
            speeds.append((*settings, *[None] * (len(_SPEED_HEADS) - 1), point.state))
        else:
            costs = each.costs
            stages = (costs.fetch, costs.encode, costs.compress, costs.write, costs.rest)
            speeds.append(
                (
                    *(*settings, f"{each.seconds:.1f}", _number(point.rows_per_second, ",.0f")),
                    *(megabytes(each.bytes_per_second), _number(point.spread, ".1%")),
                    str(len(point.measurements)),
                    *(_number(cost, ".2f") for cost in (*stages, costs.total)),
                    *(_number(each.load.queued, ".2f"), point.state),
                )
            )
            load = each.load
            shares = (
                *(load.source, load.output, load.delay),
                *(load.workers, load.parent, load.database, load.others),
                *(load.cpu, load.node, load.disk, load.network),
            )
            memory = render.size(load.memory_bytes or each.peak_worker_bytes)
            loads.append((*settings, *(_number(share, ".0%") for share in shares), memory))
    yield render.table((*heads, *_SPEED_HEADS), speeds)
    yield render.table((*heads, *_LOAD_HEADS), loads)
    failed = (each for each in found.points if each.problem)
    if problems := [f"{settings_text(each.settings)}: {each.problem}" for each in failed]:
        yield "\n".join(problems)
    sample, options = None, found.options
    if (taken := found.sample) is not None:
        rows = "" if taken.rows is None else f", about {counted(taken.rows, 'row')}"
        units = f"{taken.units} of {counted(taken.of_units, 'work unit')}"
        sample = f"{units} ({taken.share:.1%}){rows}"
    limit = options.seconds
    stopped = "by a signal; points without figures were not measured"
    yield render.facts(
        (
            ("table", render.name(found.subject)),
            ("written to", found.destination),
            ("sample", sample),
            ("time", None if limit is None else f"at most {limit:g} s for each measurement"),
            (
                "order",
                f"{options.repeats} rounds, random order of seed {options.seed}, "
                f"{options.warm_up} warm-up",
            ),
            ("caches", found.caches),
            ("interrupted", stopped if found.interrupted else None),
        )
    )
    for curve in found.curves:
        if curve.settings:
            yield f"{settings_text(curve.settings)}:"
        yield _analysis_text(curve)
        if (whole := curve.whole_table) is not None:
            seconds = f"{whole.seconds:,.4g} s with {counted(whole.parallelism, 'worker')}"
            yield render.facts((("whole table", f"{seconds}, for {counted(whole.rows, 'row')}"),))


def _analysis_text(found: Analysis) -> str:
    return f"{render.table(_LEVEL_HEADS, _levels(found))}\n\n{render.facts(_answer(found))}"


def _levels(found: Analysis) -> Iterator[Sequence[object]]:
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
            *(level.parallelism, f"{level.seconds:,.6g}", level.repeats, speed, f"{linear:.0%}"),
            *(_number(level.load.cpu, ".0%"), level.sustained, "; ".join(remarks)),
        )


def _answer(found: Analysis) -> Iterator[tuple[str, str | None]]:
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
    for name, choice, otherwise in (
        ("sustained", found.sustained, "no level was measured below the CPU limit"),
        ("production", found.production, "no level is below the CPU limit"),
    ):
        if choice is not None:
            workers = counted(choice.parallelism, "worker")
            otherwise = f"{workers}, {choice.seconds:,.4g} s ({choice.text})"
        yield name, otherwise
    yield "limit below knee", found.limits.below_knee.text
    above = found.limits.above_knee
    yield "limit above knee", None if above is None else above.text
    measured = found.spread.measured
    assumed = "from the repeats" if measured else "assumed, because no level was repeated"
    yield "spread", f"{share}, {assumed}"


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)
