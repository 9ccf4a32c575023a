"""Where the options of a job were set, so that no variable narrows a run in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource

from unloader.cli.display import render
from unloader.cli.options.option import JobOption, given_values
from unloader.cli.options.rules import PARQUET_OPTIONS, TEXT_OPTIONS, unknown_to
from unloader.model import Setting
from unloader.redaction import redact

SELECTS = (
    "query",
    "columns",
    "exclude",
    "where",
    "partition",
    "scn",
    "session_sql",
    "enable_row_security",
)
"""Options that decide which rows and columns come: with them the output is not the table."""

CHANGES = (
    *("table", "to", "format", "compression", "file_size", "file_per", "file_name", "checksum"),
    *("as_text", "overwrite", "consistency", "verify", *TEXT_OPTIONS, *PARQUET_OPTIONS),
)
"""Options that decide what is written of them, where to, and how it is checked."""

UNTOLD = (
    *("password_file", "password_prompt", "output", "json", "quiet", "progress"),
    *("log_format", "log_interval"),
)
"""Options on secrets, and on how things are told."""


def settings_of(ctx: click.Context, kind: str) -> tuple[Setting, ...]:
    """Return each option that is set on the command line, by a variable or in a file.

    Variables that do not apply to the format or to this kind of source are left out, as the run
    leaves them.
    """
    return tuple(_settings(ctx, unknown_to(kind)))


def selected_by(settings: tuple[Setting, ...]) -> tuple[Setting, ...]:
    """Return the settings that select rows or columns."""
    return tuple(each for each in settings if each.effect == "selects")


def _settings(ctx: click.Context, unknown: frozenset[str]) -> Iterator[Setting]:
    format_options = TEXT_OPTIONS if ctx.params["format"] == "parquet" else PARQUET_OPTIONS
    other = {*UNTOLD, *format_options, *unknown}
    for option, value in given_values(ctx):
        name = str(option.name)
        if name in other or value in (None, []):
            continue
        place = ctx.get_parameter_source(name)
        yield Setting(
            name=option.opts[0].lstrip("-"),
            value=_shown(name, value),
            origin=_origin(ctx, option, place),
            effect="selects" if name in SELECTS else "changes" if name in CHANGES else "none",
            from_variable=place is ParameterSource.ENVIRONMENT,
        )


def _shown(name: str, value: Any) -> str:
    if name == "session_sql":
        # A statement may hold a password, which no pattern is sure to find.
        return f"{len(value)} statement{'s' if len(value) > 1 else ''}"
    if isinstance(value, bool):
        return str(value).lower()
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return render.one_line(redact(text))


def _origin(ctx: click.Context, option: click.Option, place: ParameterSource | None) -> str:
    if place is ParameterSource.ENVIRONMENT:
        return f"environment variable {JobOption.variable(option)}"
    if place is ParameterSource.DEFAULT_MAP:
        return f"{'plan' if ctx.obj.planned else 'job'} file {ctx.obj.job_file}"
    return "command line"
