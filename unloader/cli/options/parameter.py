"""A declared option as a parameter of click: a flag, a variable and a key of a job file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from unloader.cli.invocation import Invocation
from unloader.request.option import Option
from unloader.request.settings import at_home
from unloader.request.value_types import PLACES, Choice, Kind, PathText, Whole

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    ParamType = click.ParamType[Any]
else:
    # Not generic before click 8.4.
    ParamType = click.ParamType

GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
"""The sources that set an option for this job; a variable may be set for all jobs."""


class KindType(ParamType):
    """A kind of value as click has types; its name is what the help page shows for the value."""

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
        from click.shell_completion import CompletionItem

        places = self.kind is PLACES
        return [CompletionItem(incomplete, type="dir")] if places else []


def click_type(kind: Kind) -> ParamType:
    """Return click's type for a kind; its own where it has the same."""
    if isinstance(kind, Choice):
        return click.Choice(kind.choices)
    if isinstance(kind, Whole):
        return click.IntRange(kind.minimum, kind.maximum)
    if isinstance(kind, PathText) and kind.only:
        return click.Path(file_okay=kind.only == "file", dir_okay=kind.only == "directory")
    return click.STRING if isinstance(kind, PathText) or type(kind) is Kind else KindType(kind)


class JobOption(click.Option):
    """An option that is also read from the environment, and shown under a heading."""

    WITHOUT_VARIABLE = "unloader.without_variable"
    """Key of a context's `meta`: names of options that do not look at the environment there."""

    _RAW = "unloader.raw"

    def __init__(self, declared: Option) -> None:
        """Make the parameter of what is declared."""
        flags = (f"--{key.replace('_', '-')}" for key in declared.keys)
        super().__init__(
            ["/".join(flags)],
            is_flag=declared.is_flag,
            help=declared.help,
            required=declared.required,
            multiple=declared.multiple,
            show_default=declared.default_text or True,
            **_value(declared),
        )
        self.declared = declared
        self.group = declared.group
        self.envvar = declared.variables[0]
        self.show_envvar = True

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the variable's text; UNLOADER_NO_HEADER=1 is --no-header, and so on."""
        if self.name in ctx.meta.get(self.WITHOUT_VARIABLE, ()):
            return None
        value = super().resolve_envvar_value(ctx)
        for opposite in self.declared.variables[1:] if value is None else ():
            text = os.environ.get(opposite)
            if text:
                return str(not click.BOOL.convert(text, self, ctx))
        return value

    def variable(self) -> str:
        """Return the name of the variable that sets it now."""
        names = self.declared.variables
        return next((name for name in names if os.environ.get(name)), names[0])

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value as its type has it, and remember how it was written."""
        if "\0" in str(value) and not isinstance(self.type, KindType):
            # No system call and no database takes it; a delimiter may be one.
            raise click.BadParameter("it holds the character NUL.", ctx, self)
        converted = super().type_cast_value(ctx, value)
        place = ctx.get_parameter_source(str(self.name))
        if place is not ParameterSource.DEFAULT:
            is_path = self.declared.kind.is_path
            if is_path:
                converted = self._at_home(ctx, converted, place)
            parsed = self.is_flag or self.multiple
            kept = converted if parsed else str(converted) if is_path else value
            ctx.meta.setdefault(self._RAW, {})[self.name] = kept
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

    def _at_home(self, ctx: click.Context, value: Any, place: ParameterSource | None) -> Any:
        """Return a path with the home directory in it where no shell has seen it."""
        if isinstance(value, tuple):
            return tuple(self._at_home(ctx, each, place) for each in value)
        if not isinstance(value, str):
            return value
        if "\0" in value:
            raise click.BadParameter("it holds the character NUL.", ctx, self)
        no_shell = place is ParameterSource.ENVIRONMENT or (
            # A plan has paths as they were on a command line.
            place is ParameterSource.DEFAULT_MAP and not ctx.obj.planned
        )
        try:
            return at_home(value) if no_shell else value
        except ValueError as error:
            raise click.BadParameter(f"{error}.", ctx, self) from error

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the place of a wrong value: an option, a variable, or a key of a job file."""
        place = ctx.get_parameter_source(str(self.name)) if ctx is not None else None
        if place is ParameterSource.ENVIRONMENT:
            return f"the variable {self.envvar}"
        name = self.declared.name
        if ctx is not None and place is ParameterSource.DEFAULT_MAP:
            invocation: Invocation = ctx.obj
            return f"the key {name!r} of {invocation.set_in(self.declared.key)}"
        return f"'--{name}'"


def _value(declared: Option) -> dict[str, Any]:
    """Return what click must know of the values: type, text shown for them, and default."""
    kind, initial = declared.kind, declared.initial
    if declared.is_flag:
        return {"default": initial}
    found: dict[str, Any] = {
        "type": click_type(kind),
        "metavar": declared.metavar or (None if isinstance(kind, Choice) else kind.shown),
    }
    if initial is not None and not declared.multiple:
        # Whole numbers as they are: click shows the range of an integer by its type.
        found["default"] = initial if isinstance(kind, Whole) else kind.write(initial)
    return found


def given_values(ctx: click.Context) -> Iterator[tuple[JobOption, Any]]:
    """Yield each option that is set anywhere, with a value that a job file may hold for it."""
    raw = ctx.meta.get(JobOption._RAW, {})
    for option in ctx.command.params:
        if isinstance(option, JobOption) and option.name in raw:
            value = raw[option.name]
            yield option, [item for each in value for item in each] if option.multiple else value


def on_command_line(ctx: click.Context) -> frozenset[str]:
    """Return the names of the parameters on the command line."""
    return frozenset(name for name in ctx.params if ctx.get_parameter_source(name) is GIVEN[0])


def given(ctx: click.Context) -> frozenset[str]:
    """Return the names of the parameters that the command line or the job file sets.

    A value in [defaults] may be meant for other tables, like a variable.
    """
    found = (name for name in ctx.params if ctx.get_parameter_source(name) in GIVEN)
    return frozenset(name for name in found if not is_default_of_job(ctx, name))


def is_default_of_job(ctx: click.Context, name: str) -> bool:
    """Return whether a parameter is set by [defaults] of a job file, for any table it has."""
    if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP:
        return False
    given = ctx.obj.job_values.get(name)
    return given is not None and given.is_default
