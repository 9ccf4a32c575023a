"""A sweep that measures: from the options of the command to points, answer and files."""

from __future__ import annotations

import itertools
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
from unloader.cli.options.credentials import connect_to
from unloader.cli.options.parameter import given, given_values
from unloader.cli.options.request_of import request_of
from unloader.cli.options.source_argument import SourceArgument
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import check_report
from unloader.errors import (
    ConfigError,
    FollowUpFailed,
    Interrupted,
    OutputFailed,
    UnloaderError,
    UsageError,
)
from unloader.redaction import holds_sql_password
from unloader.request.option import Option
from unloader.request.options import AXES, POINTS, options_of
from unloader.storage.storage_protocol import MANIFEST
from unloader.tuning.analysis import MOST_LEVELS, Analysis, Rules
from unloader.tuning.live_sweep import sweep
from unloader.tuning.sweep_document import SweepOptions, Variant, points_csv
from writers import registry
from writers.codecs.choice import label
from writers.errors import FormatError
from writers.files.publish import write_atomically
from writers.model import Compression

if TYPE_CHECKING:
    from unloader.model import SourceSpec
    from unloader.tuning.sweep_document import SweepDocument


JOB_SUFFIX = ".toml"
"""By it `unloader run` knows a job file."""

_PASSWORD = "password-"
"""First letters of the options about the source of the password."""

_OF_A_SWEEP = (POINTS, "Analysis")
_OF_A_CALL = "Display"
"""Section of the options about the display of one call."""


def check_files(values: Mapping[str, Any]) -> None:
    """Refuse files that cannot be written before hours of measuring.

    Raises:
        UsageError: A job file is asked for that `run` would not take.
        OutputFailed: A directory is not there.
        ConfigError: The page cannot be made or written.
    """

    for name in ("csv", "job"):
        path = Path(values[name]) if values[name] else None
        if path is None:
            continue
        if path.is_dir() or not path.absolute().parent.is_dir() or path.name == MANIFEST:
            raise OutputFailed(
                f"--{name} cannot be written to {path}", "give a file in a directory that is there"
            )
    if values["job"]:
        _check_job(values)
    check_report(values)


def write_points(path: Path, report: SweepDocument) -> None:
    """Write the points as CSV.

    Raises:
        OutputFailed: The file system refused.
    """

    _write(path, points_csv(report), "--csv")


def write_page(values: Mapping[str, Any], found: Analysis) -> None:
    """Write the page of `--report`, if it is asked for.

    Args:
        values: The options by their names with underscores.
        found: What `--json` prints.

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


def write_job(
    context: click.Context,
    url: str,
    recommended: Mapping[str, str] | None,
    doubts: Sequence[str] = (),
) -> None:
    """Write the job file of `--job`, if it is asked for: the options of this call, as recommended.

    Args:
        context: Of the call.
        url: The source, without a secret.
        recommended: The options that the sweep has varied, as they are written; None where it
            recommends nothing.
        doubts: Why the recommendation may be wrong.

    Raises:
        FollowUpFailed: There is nothing to write.
        OutputFailed: The file system refused.
    """
    path = context.params["job"]
    if not path:
        return
    if not recommended or "parallelism" not in recommended:
        raise FollowUpFailed(
            f"{path} is not written: the sweep recommends no parallelism",
            "see the levels and notices of its answer",
        )
    lines = [
        "# Recommended by unloader sweep. Run it with: unloader run FILE",
        *(f"# Doubtful: {doubt}" for doubt in doubts),
        *_job(context, url, recommended),
    ]
    _write(Path(path), "\n".join(lines) + "\n", "--job")


def _check_job(values: Mapping[str, Any]) -> None:
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


def _job(context: click.Context, url: str, recommended: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the job: the given options, with one value for each varied option."""

    yield f"source = {_toml(url)}"
    known = {option.key: option for option in options_of("run")}
    format_name = recommended.get("format") or context.params["format"][0]
    for parameter, value in given_values(context):
        declared = parameter.declared
        option = known.get(declared.key)
        # Some options of a sweep have the name of a different option of run, such as --report.
        if option is None or (declared.group in _OF_A_SWEEP and declared.name not in AXES):
            continue
        if option.name in recommended or not _belongs(option, format_name):
            continue
        yield f"{option.name} = {_toml(value)}"
    for name, text in recommended.items():
        if text != "default":
            yield f"{name} = {text if name == 'parallelism' else _toml(text)}"


def _belongs(option: Option, format_name: str) -> bool:
    kept = option.kept or option.name.startswith(_PASSWORD)
    return kept and option.group != _OF_A_CALL and option.knows(format_name)


def _toml(value: Any) -> str:
    """Return a value of an option as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_toml(str(key))} = {_toml(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    return '"' + "".join(map(_escaped, str(value))) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    # TOML allows no control characters in a text.
    return f"\\u{ord(character):04x}" if ord(character) < 32 or ord(character) == 127 else character


def _write(path: Path, text: str, option: str) -> None:

    try:
        write_atomically(path.resolve(), text.encode("utf-8"))
    except OSError as error:
        raise OutputFailed(
            f"{option} cannot be written to {path}: {error.strerror}", "give another file"
        ) from error


_VARIED = ("parallelism", *AXES)
MOST_POINTS = 500


def live_sweep(
    context: click.Context, argument: SourceArgument, values: Mapping[str, Any]
) -> SweepDocument:
    """Measure the points that the options ask for.

    Raises:
        UnloaderError: As `unloader.tuning.live_sweep.sweep`, and for options that contradict
            each other.
    """

    if not values["to"]:
        raise UsageError(
            "the points have no destination",
            "give a directory with --to, or --to null: to drop the output",
        )
    check_files(values)
    variants = _variants(context, values)
    # Of the options that vary a session knows none; the first point has one value of each.
    source = connect_to(argument.url, variants[0][1], given(context))
    points = [_variant(settings, one, source) for settings, one in variants]
    with display_for(dict(values)) as display, stop_on_signals(display.stopping) as stop:
        return sweep(points, _options(values), rules=rules_of(values), observe=display, stop=stop)


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
        write_points(Path(values["csv"]), found)
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
        write_job(context, url, found.recommended_options, found.doubts)


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


def rules_of(values: Mapping[str, Any]) -> Rules:
    """Return the rules that the analysis goes by."""
    return Rules(
        spread=values["spread"],
        widest_spread=values["max_spread"],
        queue_seconds=values["queue_limit"],
        cpu_limit=values["cpu_limit"],
        discount=values["discount"],
    )


def _options(values: Mapping[str, Any]) -> SweepOptions:

    return SweepOptions(
        repeats=values["repeats"],
        most_repeats=2 * values["repeats"],
        widest_spread=values["max_spread"],
        warm_up=values["warm_up"],
        seed=values["seed"],
        sample=values["sample"],
        seconds=values["seconds"] or None,
    )


def _variants(
    context: click.Context, values: Mapping[str, Any]
) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """Return the settings of each point, as they are written, and its values of all options.

    Raises:
        UsageError: The options contradict each other, or there are too many points.
    """
    kinds = {each.key: each.kind for each in options_of("sweep")}
    axes = {
        name: kinds[name.replace("-", "_")].read(values[name.replace("-", "_")] or (None,))
        for name in _VARIED
        if name != "parallelism"
    }
    axes = {"parallelism": values["parallelism"] or _usual_levels(), **axes}
    if len(axes["parallelism"]) > MOST_LEVELS:
        raise UsageError(
            f"there are more than {MOST_LEVELS} levels of parallelism", "give fewer --parallelism"
        )
    varied = {name for name, chosen in axes.items() if len(chosen) > 1} | {"parallelism"}
    found = []
    for chosen in _grid(axes):
        one = {**values, **{name.replace("-", "_"): value for name, value in chosen.items()}}
        one["verify"] = "none"
        if len(axes["format"]) > 1 and not _possible(one):
            continue
        rules.validate(one, _given(context, one, several_formats=len(axes["format"]) > 1))
        written = {name: _written(kinds, name, chosen[name]) for name in axes if name in varied}
        found.append((written, one))
        if len(found) > MOST_POINTS:
            raise UsageError(
                f"there are more than {MOST_POINTS} points", "give fewer values of fewer options"
            )
    if not found:
        raise UsageError("no codec of --compression fits a --format", "give others")
    return found


def _grid(axes: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    for chosen in itertools.product(*axes.values()):
        yield dict(zip(axes, chosen, strict=True))


def _written(kinds: Mapping[str, Any], name: str, value: Any) -> str:
    if value is None:
        return "default"
    kind = kinds[name.replace("-", "_")]
    if name == "compression":
        return label(value) if not isinstance(value, str) else value
    return str(kind.write((value,)) if kind.lists else value)


def _possible(one: Mapping[str, Any]) -> bool:
    """Return whether the codec of a point goes with its format."""

    codec = one["compression"]
    if not isinstance(codec, Compression):
        return True
    try:
        registry.check(one["format"], codec)
    except FormatError:
        return False
    return True


def _given(
    context: click.Context, one: Mapping[str, Any], *, several_formats: bool
) -> frozenset[str]:
    """Return the options that the user has set, without options of another format of the sweep."""
    names = given(context)
    if not several_formats:
        return names
    others = {option.key for option in options_of("sweep") if not option.knows(one["format"])}
    return names - others


def _variant(settings: Mapping[str, str], one: Mapping[str, Any], source: SourceSpec) -> Variant:

    return Variant(
        settings=settings,
        request=request_of(one, source),
        parallelism=one["parallelism"],
    )


def _usual_levels() -> tuple[int, ...]:
    """Return 1, 2, 4 and so on up to the cores that may be used, these included."""

    try:
        most = detect().usable_cpus
    except TopologyError as error:
        raise ConfigError(error.message, "give the levels with --parallelism 1,2,4") from error
    levels = itertools.takewhile(lambda level: level < most, (2**at for at in itertools.count()))
    return (*levels, most)
