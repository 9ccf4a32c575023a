"""Where the options of a job were set, so that no variable narrows a run in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource

from unloader.cli.display import render
from unloader.cli.options.parameter import JobOption, given_values
from unloader.model import Setting
from unloader.redaction import redact
from unloader.request.option import Option
from unloader.sources.options import unknown_to


def settings_of(ctx: click.Context, kind: str) -> tuple[Setting, ...]:
    """Return each option that is set on the command line, by a variable or in a file.

    Variables that do not apply to the format or to this kind of source are left out, as the run
    leaves them.
    """
    return tuple(_settings(ctx, unknown_to(kind)))


def _settings(ctx: click.Context, unknown: frozenset[str]) -> Iterator[Setting]:
    for parameter, value in given_values(ctx):
        option = parameter.declared
        applies = option.knows(ctx.params["format"]) and option.key not in unknown
        if option.effect == "unrecorded" or not applies or value in (None, []):
            continue
        place = ctx.get_parameter_source(option.key)
        yield Setting(
            name=option.name,
            value=shown_value(option, value),
            origin=_origin(ctx, parameter, place),
            effect=option.effect,
            from_variable=place is ParameterSource.ENVIRONMENT,
        )


def shown_value(option: Option, value: Any) -> str:
    """Return the value of an option in one line, without a secret."""
    if option.secret:
        # A statement may hold a password, which no pattern is sure to find.
        return f"{len(value)} statement{'s' if len(value) > 1 else ''}"
    if isinstance(value, bool):
        return str(value).lower()
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return render.one_line(redact(text))


def _origin(ctx: click.Context, option: JobOption, place: ParameterSource | None) -> str:
    if place is ParameterSource.ENVIRONMENT:
        return f"environment variable {option.variable()}"
    if place is ParameterSource.DEFAULT_MAP:
        given = ctx.obj.job_values.get(option.declared.key)
        path = ctx.obj.job_file if given is None else given.place.path
        entry = f", {given.entry}" if given is not None and given.entry else ""
        return f"{'plan' if ctx.obj.planned else 'job'} file {path}{entry}"
    return "command line"
