"""A declared option as a parameter of click: a flag, a variable and a key of a job file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from unloader.cli.display import render
from unloader.cli.invocation import Invocation
from unloader.model import Setting
from unloader.redaction import redact
from unloader.request.job_files import meaning
from unloader.request.option import Option
from unloader.request.value_types import PLACES
from unloader.sources.registry import unknown_to

GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
"""The sources that set an option for this job; a variable may be set for all jobs."""

_RAW = "unloader.raw"
"""Key of a context's `meta`: the values as they were written."""


class JobOption(click.Option):
    """An option that is also read from the environment, and shown under a heading."""

    WITHOUT_VARIABLE = "unloader.without_variable"
    """Key of a context's `meta`: names of options that do not look at the environment there."""

    def __init__(self, declared: Option) -> None:
        kind, initial, is_flag = declared.kind, declared.initial, declared.is_flag
        shown, found = kind.shown, dict[str, Any]()
        if is_flag:
            found["default"] = initial
        elif initial is not None and not declared.multiple:
            found["default"] = kind.write(initial)
        super().__init__(
            ["/".join(f"--{key.replace('_', '-')}" for key in declared.keys)],
            is_flag=is_flag,
            type=None if is_flag else click.UNPROCESSED,
            metavar=declared.metavar or (f"[{shown}]" if kind.choices else shown),
            required=declared.required,
            multiple=declared.multiple,
            show_default=declared.default_text or True,
            envvar=declared.variables[0],
            show_envvar=True,
            **found,
        )
        self.declared = declared
        self.group = declared.group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the row of the help page; only here the text is read from the declaration."""
        self.help = self.declared.help
        return super().get_help_record(ctx)

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the variable's text; UNLOADER_NO_HEADER=1 is --no-header, and so on."""
        if self.envvar is None or self.name in ctx.meta.get(self.WITHOUT_VARIABLE, ()):
            return None
        value = super().resolve_envvar_value(ctx)
        for opposite in self.declared.variables[1:] if value is None else ():
            text = os.environ.get(opposite)
            if text:
                return str(not click.BOOL.convert(text, self, ctx))
        return value

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the meaning of the value, and remember how it was written."""
        place, initial = ctx.get_parameter_source(str(self.name)), self.declared.initial
        if place is ParameterSource.DEFAULT or value is None:
            return () if self.multiple and initial is None else initial
        if self.is_flag:
            written = converted = super().type_cast_value(ctx, value)
        else:
            # A plan has paths as they were on a command line.
            in_job = place is ParameterSource.DEFAULT_MAP and not ctx.obj.planned
            no_shell = in_job or place is ParameterSource.ENVIRONMENT
            try:
                converted = self.declared.read(value, no_shell=no_shell)
            except ValueError as error:
                raise click.BadParameter(f"{error}.", ctx, self) from error
            written = converted if self.declared.kind.is_path else value
        raw = ctx.meta.setdefault(_RAW, {})
        raw[self.name] = [*converted] if self.multiple else written
        return converted

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return the variable's text as one occurrence: blanks do not separate items."""
        text = self.resolve_envvar_value(ctx)
        return (text,) if self.multiple and text is not None else text

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Let the shell offer words, directories or files."""
        kind = self.declared.kind
        if kind is PLACES or kind.only == "directory":
            return [CompletionItem(incomplete, type="dir")]
        if kind.is_path:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(each) for each in kind.choices if each.startswith(incomplete)]

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value; --to may be missing where each route has a destination.

        Raises:
            BadOptionUsage: The command line has the option without its value; click ignores that.
        """
        given = value if isinstance(value, (tuple, list)) else (value,)
        if None in given and ctx.get_parameter_source(str(self.name)) is GIVEN[0]:
            name = self.opts[0]
            raise click.BadOptionUsage(name, f"option {name} needs a value", ctx)
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter:
            # The rules refuse an empty list.
            in_file = ctx.get_parameter_source(str(self.name)) is GIVEN[1]
            routes = self.declared.name == "to" and (ctx.params.get("route") or ctx.obj.routes)
            if in_file or routes:
                return ()
            raise

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the place of a wrong value: an option, a variable, or a key of a job file."""
        place = ctx.get_parameter_source(str(self.name)) if ctx is not None else None
        if place is ParameterSource.ENVIRONMENT:
            return f"the variable {self.envvar}"
        name = self.declared.name
        if ctx is not None and place is ParameterSource.DEFAULT_MAP:
            return f"the key {name!r} of {ctx.obj.set_in(self.declared.key)}"
        return f"'--{name}'"


def entry_context(around: click.Context, known: Invocation) -> click.Context:
    """Return the call of a command for an entry of a job file, with the values of the entry.

    The command line and the variables of the call around it override the entry.
    """
    inner = click.Context(around.command, info_name=around.info_name, obj=known)
    for option in around.command.params:
        name = str(option.name)
        if not isinstance(option, JobOption):
            continue
        place = around.get_parameter_source(name)
        given = known.job_values.get(name)
        if place in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
            value = around.params[name]
            inner.meta.setdefault(_RAW, {})[name] = around.meta[_RAW][name]
        elif given is not None:
            value, place = meaning(option.declared, given), ParameterSource.DEFAULT_MAP
            written = value if option.declared.kind.is_path else given.value
            inner.meta.setdefault(_RAW, {})[name] = [*value] if option.multiple else written
        else:
            value, place = option.declared.initial, ParameterSource.DEFAULT
            value = () if value is None and option.multiple else value
        inner.params[name] = value
        inner.set_parameter_source(name, place)
    return inner


def given_values(ctx: click.Context) -> Iterator[tuple[JobOption, Any]]:
    """Yield each option that is set anywhere, with a value that a job file may hold for it."""
    raw = ctx.meta.get(_RAW, {})
    for option in ctx.command.params:
        if isinstance(option, JobOption) and option.name in raw:
            yield option, raw[option.name]


def on_command_line(ctx: click.Context) -> frozenset[str]:
    return frozenset(name for name in ctx.params if ctx.get_parameter_source(name) is GIVEN[0])


def given(ctx: click.Context) -> frozenset[str]:
    """Return the names of the parameters that the command line or the job file sets.

    A value in [defaults] may be meant for other tables, like a variable.
    """
    found = frozenset(name for name in ctx.params if ctx.get_parameter_source(name) in GIVEN)
    in_file = [name for name in found if ctx.get_parameter_source(name) is GIVEN[1]]
    job = ctx.obj.job_values if in_file else {}
    return found - {name for name in in_file if name in job and job[name].is_default}


def settings_of(ctx: click.Context, kind: str) -> tuple[Setting, ...]:
    """Return each option that is set on the command line, by a variable or in a file.

    Variables that do not apply to the format or to this kind of source are left out, as the run
    leaves them.
    """
    found, unknown = [], unknown_to(kind)
    for parameter, value in given_values(ctx):
        option = parameter.declared
        applies = option.knows(ctx.params["format"]) and option.key not in unknown
        if option.effect == "unrecorded" or not applies or value in (None, []):
            continue
        place = ctx.get_parameter_source(option.key)
        origin = "command line"
        if place is ParameterSource.ENVIRONMENT:
            names = option.variables
            name = next((name for name in names if os.environ.get(name)), names[0])
            origin = f"environment variable {name}"
        elif place is ParameterSource.DEFAULT_MAP:
            known = ctx.obj.job_values.get(option.key)
            path = ctx.obj.job_file if known is None else known.place.path
            entry = f", {known.entry}" if known is not None and known.entry else ""
            origin = f"{'plan' if ctx.obj.planned else 'job'} file {path}{entry}"
        found.append(
            Setting(
                name=option.name,
                value=shown_value(option, value),
                origin=origin,
                effect=option.effect,
                from_variable=place is ParameterSource.ENVIRONMENT,
            )
        )
    return tuple(found)


def shown_value(option: Option, value: Any) -> str:
    """Return the value of an option in one line, without a secret."""
    if option.secret:
        # A statement may hold a password, which no pattern is sure to find.
        return f"{len(value)} statement{'s' if len(value) > 1 else ''}"
    if isinstance(value, bool):
        return str(value).lower()
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return render.one_line(redact(text))
