"""A sweep that measures: from the options of the command to points, answer and files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from numa.errors import TopologyError
from numa.topology import detect
from unloader import api
from unloader.cli.display import render
from unloader.cli.display.progress import display_for
from unloader.cli.display.tuning_pages import sweep_text
from unloader.cli.options import rules
from unloader.cli.options.parameter import given, given_values
from unloader.cli.options.request_of import connect_to, request_of
from unloader.cli.options.source_argument import SourceArgument
from unloader.cli.signals import stop_on_signals
from unloader.errors import (
    ConfigError,
    FollowUpFailed,
    Interrupted,
    OutputFailed,
    UnloaderError,
    UsageError,
)
from unloader.redaction import holds_sql_password
from unloader.request.options import AXES, POINTS, options_of
from unloader.storage.storage_protocol import MANIFEST
from unloader.tuning.analysis import MOST_LEVELS, Analysis, Rules
from unloader.tuning.live_sweep import sweep
from unloader.tuning.sweep_document import SweepOptions, Variant, points_csv
from writers import registry
from writers.codecs.choice import label
from writers.errors import FormatError, WriteError
from writers.files.publish import write_atomically
from writers.model import Compression

if TYPE_CHECKING:
    from unloader.tuning.sweep_document import SweepDocument

JOB_SUFFIX = ".toml"
"""By it `unloader run` knows a job file."""

_PASSWORD = "password-"
"""First letters of the options about the source of the password."""

_OF_A_SWEEP = (POINTS, "Analysis")
_OF_A_CALL = "Display"
"""Section of the options about the display of one call."""

MOST_POINTS = 500


def live_sweep(
    context: click.Context, argument: SourceArgument, values: Mapping[str, Any]
) -> SweepDocument:
    """Measure the points that the options ask for.

    Raises:
        UnloaderError: As `unloader.tuning.live_sweep.sweep`, and for options that contradict
            each other, or name files that cannot be written.
    """
    if not values["to"]:
        raise UsageError(
            "the points have no destination",
            "give a directory with --to, or --to null: to drop the output",
        )
    _check_files(values)
    variants = _variants(context, values)
    # Of the options that vary a session knows none; the first point has one value of each.
    source = connect_to(argument.url, variants[0][1], given(context))
    points = [
        Variant(settings=settings, request=request_of(one, source), parallelism=one["parallelism"])
        for settings, one in variants
    ]
    options = SweepOptions(
        repeats=values["repeats"],
        most_repeats=2 * values["repeats"],
        widest_spread=values["max_spread"],
        warm_up=values["warm_up"],
        seed=values["seed"],
        sample=values["sample"],
        seconds=values["seconds"] or None,
    )
    with display_for(dict(values)) as display, stop_on_signals(display.stopping) as stop:
        return sweep(points, options, rules=rules_of(values), observe=display, stop=stop)


def rules_of(values: Mapping[str, Any]) -> Rules:
    """Return the rules that the analysis goes by."""
    return Rules(
        spread=values["spread"],
        widest_spread=values["max_spread"],
        queue_seconds=values["queue_limit"],
        cpu_limit=values["cpu_limit"],
        discount=values["discount"],
    )


def _check_files(values: Mapping[str, Any]) -> None:
    """Refuse files that cannot be written before hours of measuring."""
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
        api.check_report(Path(values["report"]))


def _variants(
    context: click.Context, values: Mapping[str, Any]
) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """Return the settings of each point, as they are written, and its values of all options.

    Raises:
        UsageError: The options contradict each other, or there are too many points.
    """
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
        return label(value)
    return str(kind.write((value,)) if kind.lists else value)


def _usual_levels() -> tuple[int, ...]:
    """Return 1, 2, 4 and so on up to the cores that may be used, these included."""
    try:
        most = detect().usable_cpus
    except TopologyError as error:
        raise ConfigError(error.message, "give the levels with --parallelism 1,2,4") from error
    levels = itertools.takewhile(lambda level: level < most, (2**at for at in itertools.count()))
    return (*levels, most)


def answer(context: click.Context, url: str, found: SweepDocument) -> None:
    """Show the result of a sweep, and write the requested files.

    Args:
        context: Of the call.
        url: The source.
        found: The result.

    Raises:
        OutputFailed: The points or the job file cannot be written.
        FollowUpFailed: The page cannot, or there is nothing to recommend.
        Interrupted: The sweep was stopped early; the finished points are shown.
    """
    values = context.params
    if values["csv"]:
        _write(Path(values["csv"]), points_csv(found), "--csv")
    if values["json"]:
        render.emit_json(to_builtins(found))
    elif not values["quiet"]:
        render.emit(sweep_text(found))
    for notice in () if values["quiet"] else found.notices:
        click.echo(f"unloader: notice: {render.visible(notice)}", err=True)
    with after_answer(json=values["json"]):
        write_page(values, found)
        if found.interrupted:
            raise Interrupted(
                "the sweep was stopped by a signal before all points were measured",
                "only measured points are shown; sweep again for the rest",
            )
        if values["job"]:
            _write_job(context, url, found.recommended_options, found.doubts)


@contextmanager
def after_answer(*, json: bool) -> Iterator[None]:
    """Report what fails once the answer is shown.

    With `--json` the answer is the one JSON object of a call, so that an error gets none.
    """
    try:
        yield
    except UnloaderError as error:
        if not json:
            raise
        click.echo(f"unloader: error: {error}", err=True)
        raise click.exceptions.Exit(error.exit_code) from error


def write_page(values: Mapping[str, Any], found: Analysis) -> None:
    """Write the page of `--report`, if it is asked for.

    Raises:
        FollowUpFailed: It could not be written; the measurements are shown already.
    """
    if not values["report"]:
        return
    try:
        api.write_report(Path(values["report"]), api.sweep_report(found))
    except UnloaderError as error:
        raise FollowUpFailed(
            f"the sweep is complete, but {error.message}",
            "write the answer with --json into a file, and give that to unloader report",
        ) from error


def _write_job(
    context: click.Context, url: str, recommended: Mapping[str, str], doubts: Sequence[str]
) -> None:
    """Write the job file of `--job`: the options of this call, with one value for each varied one.

    Raises:
        FollowUpFailed: No parallelism is recommended.
        OutputFailed: The file system refused.
    """
    path = Path(context.params["job"])
    if "parallelism" not in recommended:
        raise FollowUpFailed(
            f"{path} is not written: the sweep recommends no parallelism",
            "see the levels and notices of its answer",
        )
    lines = [
        "# Recommended by unloader sweep. Run it with: unloader run FILE",
        *(f"# Doubtful: {doubt}" for doubt in doubts),
        f"source = {_toml(url)}",
    ]
    known = {option.key: option for option in options_of("run")}
    format_name = recommended.get("format") or context.params["format"][0]
    for parameter, value in given_values(context):
        declared = parameter.declared
        option = known.get(declared.key)
        # Some options of a sweep have the name of a different option of run, such as --report.
        if option is None or (declared.group in _OF_A_SWEEP and declared.name not in AXES):
            continue
        kept = option.kept or option.name.startswith(_PASSWORD)
        if not kept or option.group == _OF_A_CALL or not option.knows(format_name):
            continue
        if option.name not in recommended:
            lines.append(f"{option.name} = {_toml(value)}")
    for name, text in recommended.items():
        if text != "default":
            lines.append(f"{name} = {text if name == 'parallelism' else _toml(text)}")
    _write(path, "\n".join(lines) + "\n", "--job")


def _toml(value: Any) -> str:
    """Return a value of an option as TOML has it."""
    if isinstance(value, dict):
        pairs = (f"{_toml(str(key))} = {_toml(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    plain = value if isinstance(value, (bool, int, float)) else str(value)
    # Texts and numbers are as in JSON, where one control character may stay as it is.
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write(path: Path, text: str, option: str) -> None:
    try:
        write_atomically(path.resolve(), text.encode("utf-8"))
    except WriteError as error:
        raise OutputFailed(
            f"{option} cannot be written: {error.message}", "give another file"
        ) from error
