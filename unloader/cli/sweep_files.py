"""The files that a sweep writes where it is asked for them: points, page and recommended job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unloader.errors import FollowUpFailed, OutputFailed, UnloaderError, UsageError
from unloader.redaction import holds_sql_password
from unloader.request.options.option import Option, of_command
from unloader.request.options.sweeping import AXES, SECTION
from unloader.sources.options import every_option

if TYPE_CHECKING:
    import click

    from unloader.tuning.analysis import Analysis
    from unloader.tuning.sweep_document import SweepDocument

JOB_SUFFIX = ".toml"
"""By it `unloader run` knows a job file."""

_PASSWORD = "password-"
"""First letters of the options about the source of the password."""

_OF_A_SWEEP = (SECTION, "Analysis")
_OF_A_CALL = "Display"
"""Section of the options about the display of one call."""


def check_files(values: Mapping[str, Any]) -> None:
    """Refuse files that cannot be written before hours of measuring.

    Raises:
        UsageError: A job file is asked for that `run` would not take.
        OutputFailed: A directory is not there.
        ConfigError: The page cannot be made or written.
    """
    from unloader.storage.model import MANIFEST

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
    check_page(values)


def check_page(values: Mapping[str, Any]) -> None:
    """Refuse a page that cannot be made or written.

    Raises:
        ConfigError: Such as a library that is missing.
    """
    if values["report"]:
        from unloader import api

        api.check_report(Path(values["report"]))


def write_points(path: Path, report: SweepDocument) -> None:
    """Write the points as CSV.

    Raises:
        OutputFailed: The file system refused.
    """
    from unloader.tuning.sweep_document import points_csv

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
    from unloader import api

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
    from unloader.cli.options.parameter import given_values

    yield f"source = {_toml(url)}"
    known = {option.key: option for option in of_command(every_option(), "run")}
    format_name = recommended.get("format") or context.params["format"][0]
    for parameter, value in given_values(context):
        declared = parameter.declared
        option = known.get(declared.key)
        # Some options of a sweep have the name of a different option of run, such as --report.
        if option is None or (declared.section in _OF_A_SWEEP and declared.name not in AXES):
            continue
        if option.name in recommended or not _belongs(option, format_name):
            continue
        yield f"{option.name} = {_toml(value)}"
    for name, text in recommended.items():
        if text != "default":
            yield f"{name} = {text if name == 'parallelism' else _toml(text)}"


def _belongs(option: Option, format_name: str) -> bool:
    kept = option.kept or option.name.startswith(_PASSWORD)
    return kept and option.section != _OF_A_CALL and option.knows(format_name)


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
    from writers.files.publish import write_atomically

    try:
        write_atomically(path.resolve(), text.encode("utf-8"))
    except OSError as error:
        raise OutputFailed(
            f"{option} cannot be written to {path}: {error.strerror}", "give another file"
        ) from error
