"""A declared option as a parameter of click: a flag, a variable and a key of a job file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from unloader.cli.display import render
from unloader.cli.invocation import Invocation
from unloader.model import Setting
from unloader.redaction import redact
from unloader.request.job.grammar import as_given, meaning
from unloader.request.option import Option
from unloader.request.settings import at_home
from unloader.request.value_types import PLACES, Kind
from unloader.sources.registry import unknown_to

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    # Not generic before click 8.4.
    ParamType = click.ParamType

GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
"""The sources that set an option for this job; a variable may be set for all jobs."""

_RAW = "unloader.raw"
"""Key of a context's `meta`: the values as they were written."""


class KindType(ParamType):
    """A kind of value as click has types; its name is the text for the value on the help page."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.name = kind.shown

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of the text, or fail with the words of the kind."""
        try:
            return self.kind.read(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)

    def split_envvar_value(self, rv: str) -> list[str]:
        """Return the variable's text as one occurrence: blanks do not separate items."""
        return [rv]

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Let the shell offer directories where a destination belongs."""
        return [CompletionItem(incomplete, type="dir")] if self.kind is PLACES else []


class JobOption(click.Option):
    """An option that is also read from the environment, and shown under a heading."""

    WITHOUT_VARIABLE = "unloader.without_variable"
    """Key of a context's `meta`: names of options that do not look at the environment there."""

    def __init__(self, declared: Option) -> None:
        kind, initial, found = declared.kind, declared.initial, dict[str, Any]()
        if not declared.is_flag:
            if kind.choices:
                found["type"] = click.Choice(kind.choices)
            elif kind.is_whole:
                found["type"] = click.IntRange(kind.minimum, kind.maximum)
            elif kind.only:
                of_files = kind.only == "file"
                found["type"] = click.Path(file_okay=of_files, dir_okay=not of_files)
            else:
                found["type"] = KindType(kind)
            found["metavar"] = declared.metavar or (None if kind.choices else kind.shown)
        if declared.is_flag or kind.is_whole:
            # Whole numbers as they are: click shows the range of an integer by its type.
            found["default"] = initial
        elif initial is not None and not declared.multiple:
            found["default"] = kind.write(initial)
        super().__init__(
            ["/".join(f"--{key.replace('_', '-')}" for key in declared.keys)],
            is_flag=declared.is_flag,
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
        """Return the value as its type has it, and remember how it was written."""
        place, initial = ctx.get_parameter_source(str(self.name)), self.declared.initial
        if (
            place is ParameterSource.DEFAULT
            and isinstance(self.type, KindType)
            and not self.multiple
            and initial is not None
        ):
            return initial  # The default of click is the text of this value, for the help page.
        converted = super().type_cast_value(ctx, value)
        if place is not ParameterSource.DEFAULT:
            is_path = self.declared.kind.is_path
            no_shell = place is ParameterSource.ENVIRONMENT or (
                # A plan has paths as they were on a command line.
                place is ParameterSource.DEFAULT_MAP and not ctx.obj.planned
            )
            if is_path and no_shell and converted is not None:
                try:
                    converted = (
                        tuple(tuple(map(at_home, each)) for each in converted)
                        if self.multiple
                        else at_home(converted)
                    )
                except ValueError as error:
                    raise click.BadParameter(f"{error}.", ctx, self) from error
            parsed = self.is_flag or self.multiple
            written = converted if parsed else str(converted) if is_path else value
            items = [*chain.from_iterable(written)] if self.multiple else written
            ctx.meta.setdefault(_RAW, {})[self.name] = items
        return converted

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value; of a repeated option, the items of all occurrences.

        Raises:
            BadOptionUsage: The command line has the option without its value; click ignores that.
        """
        given = value if isinstance(value, (tuple, list)) else (value,)
        if None in given and ctx.get_parameter_source(str(self.name)) is GIVEN[0]:
            name = self.opts[0]
            raise click.BadOptionUsage(name, f"option {name} needs a value", ctx)
        try:
            found = super().process_value(ctx, value)
        except click.MissingParameter:
            if self.declared.name == "to" and (ctx.params.get("route") or ctx.obj.routes):
                return ()  # Each route has a destination.
            raise
        return tuple(chain.from_iterable(found)) if self.multiple else found

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
            parsed = option.multiple or option.declared.kind.is_path
            written = value if parsed else as_given(option.declared, given.value)
            inner.meta.setdefault(_RAW, {})[name] = [*written] if option.multiple else written
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
