"""One kind of option: a flag, a variable UNLOADER_<NAME> and a key of the job file at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from unloader.cli.options.option_types import Typed
from unloader.request.job_file import place_in
from unloader.request.settings import at_home

if TYPE_CHECKING:
    from unloader.cli.group import Invocation

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
"""Said for this very job, unlike a variable that may be set for all of them."""


class JobOption(click.Option):
    """An option that is also read from the environment, and shown under a heading."""

    WITHOUT_VARIABLE = "unloader.without_variable"
    """Key of a context's `meta`: names of options that do not look at the environment there."""

    _RAW = "unloader.raw"

    def __init__(
        self, *args: Any, section: str = "Options", path: bool = False, **attributes: Any
    ) -> None:
        attributes.setdefault("show_default", True)
        super().__init__(*args, **attributes)
        self.section = section
        self.is_path = path
        if self.metavar is None and isinstance(self.type, Typed):
            self.metavar = self.type.name
        if not self.hidden:
            self.envvar = f"UNLOADER_{str(self.name).upper()}"
            self.show_envvar = True

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the variable's text; UNLOADER_NO_HEADER=1 is --no-header, and so on."""
        if self.name in ctx.meta.get(self.WITHOUT_VARIABLE, ()):
            return None
        value = super().resolve_envvar_value(ctx)
        for opposite in self.secondary_opts if value is None else ():
            text = os.environ.get(f"UNLOADER_{_upper(opposite)}")
            if text:
                return str(not click.BOOL.convert(text, self, ctx))
        return value

    @staticmethod
    def variable(option: click.Option) -> str:
        """Return the name of the variable that sets an option now."""
        names = [f"UNLOADER_{_upper(name)}" for name in (*option.opts, *option.secondary_opts)]
        return next((name for name in names if os.environ.get(name)), names[0])

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value as its type has it, and remember how it was written."""
        if "\0" in str(value) and not isinstance(self.type, Typed):
            # No system call and no database takes it; a delimiter may be one.
            raise click.BadParameter("it holds the character NUL.", ctx, self)
        converted = super().type_cast_value(ctx, value)
        place = ctx.get_parameter_source(str(self.name))
        if place is not ParameterSource.DEFAULT:
            if self.is_path:
                converted = self._at_home(ctx, converted, place)
            parsed = self.is_flag or self.multiple
            kept = converted if parsed else str(converted) if self.is_path else value
            ctx.meta.setdefault(self._RAW, {})[self.name] = kept
        return converted

    def _at_home(self, ctx: click.Context, value: Any, place: ParameterSource | None) -> Any:
        """Return a path with the home directory in it where no shell has seen it."""
        if isinstance(value, tuple):
            return tuple(self._at_home(ctx, each, place) for each in value)
        if isinstance(value, Path):
            return Path(self._at_home(ctx, str(value), place))
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
        """Return where the wrong value stands: the option, the variable or the job file's key."""
        place = ctx.get_parameter_source(str(self.name)) if ctx is not None else None
        if place is ParameterSource.ENVIRONMENT:
            return f"the variable {self.envvar}"
        name = self.opts[0].lstrip("-")
        if ctx is not None and place is ParameterSource.DEFAULT_MAP:
            invocation: Invocation = ctx.obj
            return f"the key {name!r} of {place_in(Path(str(invocation.job_file)), name)}"
        return f"'{self.opts[0]}'"


def _upper(name: str) -> str:
    return name.lstrip("-").replace("-", "_").upper()


class JobCommand(click.Command):
    """A command whose help page groups the options under headings."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; what is too much on it is counted, and not repeated."""
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            many = "1 argument is" if len(rest) == 1 else f"{len(rest)} arguments are"
            raise click.UsageError(
                f"{many} too many for {self.name}; one that has blanks needs quotes", ctx
            )
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section, in the order in which the sections first appear."""
        for heading, options in sections(self, ctx).items():
            records = [record for record in (o.get_help_record(ctx) for o in options) if record]
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def sections(command: click.Command, ctx: click.Context) -> dict[str, list[click.Option]]:
    """Return the visible options of a command under their headings."""
    found: dict[str, list[click.Option]] = {}
    for parameter in command.get_params(ctx):
        if isinstance(parameter, click.Option) and not parameter.hidden:
            found.setdefault(getattr(parameter, "section", "Options"), []).append(parameter)
    return found


def option_section(heading: str) -> Callable[..., Callable[[Any], Any]]:
    """Return the decorator of options that stand under a heading."""
    return partial(click.option, cls=JobOption, section=heading)


def flatten(ctx: click.Context, option: click.Parameter, value: Any) -> tuple[str, ...]:
    """Return the items of all occurrences of a repeated list option."""
    return tuple(chain.from_iterable(value))


class Bundle:
    """Several decorators as one, which apply in the order of the help page."""

    def __init__(self, *decorators: Callable[[Any], Any]) -> None:
        """Take the decorators, first shown first."""
        self._decorators = decorators

    def __call__(self, function: Decorated) -> Decorated:
        """Apply them all."""
        for decorator in reversed(self._decorators):
            function = decorator(function)
        return function


def given_values(ctx: click.Context) -> Iterator[tuple[click.Option, Any]]:
    """Yield each option that is set anywhere, with a value that a job file may hold for it."""
    raw = ctx.meta.get(JobOption._RAW, {})
    for option in ctx.command.params:
        if isinstance(option, JobOption) and option.name in raw:
            value = raw[option.name]
            yield option, [item for each in value for item in each] if option.multiple else value


def on_command_line(ctx: click.Context) -> frozenset[str]:
    """Return the names of the parameters that stand on the command line."""
    return frozenset(name for name in ctx.params if ctx.get_parameter_source(name) is GIVEN[0])


def given(ctx: click.Context) -> frozenset[str]:
    """Return the names of the parameters that the command line or the job file sets."""
    return frozenset(name for name in ctx.params if ctx.get_parameter_source(name) in GIVEN)
