"""Commands with declared options: a flag, a variable and a key of a job file for each.

Options are shown by groups on the help page of a command, on one screen, or one alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import zip_longest
from textwrap import dedent, indent
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from unloader.cli import streams
from unloader.cli.display import render
from unloader.errors import UsageError
from unloader.model import Setting
from unloader.nouns import counted
from unloader.redaction import MASKING_KEY_VARIABLE, PARQUET_KEY_VARIABLE, PASSWORD_VARIABLE, redact
from unloader.request.option import READING, Option
from unloader.request.options import every_option, options_of, shared_options
from unloader.request.value_types import PLACES
from unloader.sources.registry import VARIABLES, unknown_to

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
            # False would mean that the value may be left out.
            is_flag=is_flag or None,
            type=None if is_flag else click.UNPROCESSED,
            metavar=declared.metavar or (f"[{shown}]" if kind.choices else shown),
            required=declared.required,
            multiple=declared.multiple,
            show_default=declared.default_text or True,
            envvar=declared.variables[0],
            show_envvar=True,
            # The format of the log counts for errors in other options, as early as the job file.
            # Routes come before --to: each has its own.
            is_eager=declared.name in ("log-format", "route"),
            **found,
        )
        self.declared = declared
        self.group = declared.group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the row of the help page; only here the text is read from the declaration."""
        self.help = self.declared.help
        return super().get_help_record(ctx)

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
        """Return the variable's text; UNLOADER_NO_HEADER=1 is --no-header, and so on.

        Text is one occurrence of a repeated option: blanks do not separate items.
        """
        if self.name in ctx.meta.get(self.WITHOUT_VARIABLE, ()):
            return None
        name, *opposite = self.declared.variables
        text = os.environ.get(name) or None
        for other in opposite if text is None else ():
            if os.environ.get(other):
                return str(not click.BOOL.convert(os.environ[other], self, ctx))
        return (text,) if self.multiple and text is not None else text

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        kind = self.declared.kind
        if kind is PLACES or kind.only == "directory":
            return [CompletionItem(incomplete, type="dir")]
        if kind.is_path:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(each) for each in kind.choices if each.startswith(incomplete)]

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value; --to may be missing where each route has a destination."""
        declared, known = self.declared, ctx.obj or streams.Invocation()
        try:
            found = super().process_value(ctx, value)
        except click.MissingParameter:
            # The rules refuse an empty list.
            in_file = ctx.get_parameter_source(str(self.name)) is GIVEN[1]
            if in_file or (declared.name == "to" and (ctx.params.get("route") or known.routes)):
                return ()
            raise
        if declared.name == "log-format":
            streams.switch(found == "json")
        elif declared.name == "to" and declared.required and "-" in found:
            # The JSON of an error stays off a standard output that is for data.
            known.data_on_stdout = True
        elif declared.name == "json" and found:
            if streams.was_closed(1):
                raise UsageError(
                    "--json needs standard output, and it is closed",
                    "send it to a file or a reader",
                )
            known.json = True
        return found

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the place of a wrong value: an option, a variable, or a key of a job file."""
        place = ctx.get_parameter_source(str(self.name)) if ctx is not None else None
        if place is ParameterSource.ENVIRONMENT:
            return f"the variable {self.envvar}"
        name = self.declared.name
        if ctx is not None and place is ParameterSource.DEFAULT_MAP:
            set_here = ctx.obj.job_values.get(self.declared.key)
            return f"the key {name!r} of {set_here.place if set_here else ctx.obj.job_file}"
        return f"'--{name}'"


def entry_context(around: click.Context, known: streams.Invocation) -> click.Context:
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
            value, place = given.meaning(option.declared), ParameterSource.DEFAULT_MAP
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


_SCREEN_COLUMNS = 80
_NAME_COLUMNS = 33
"""Width of the widest common option, `--verify [none|count|full|source]`."""

_FEW_OPTIONS = 6
"""A command with at most this many options shows all of them on its first screen."""

_FIRST_EXAMPLES = 2


class ShortHelp(click.Command):
    """A command that answers `-h` with one screen, and `--help` with everything."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, full_help = super().get_params(ctx)
        return [*own, _SHORT_HELP, full_help]

    def common(self, ctx: click.Context) -> tuple[str, list[tuple[str, str]]]:
        """Return the heading and the rows of the first screen: names and a sentence each."""
        options = [each for of in sections(self, ctx).values() for each in of]
        declared = [each for each in options if isinstance(each, JobOption)]
        few = len(declared) <= _FEW_OPTIONS
        rows = []
        for each in declared:
            record = each.get_help_record(ctx)
            if record is not None and (few or each.declared.common):
                first = each.declared.help.split(". ")[0].rstrip(".")
                rows.append((record[0], f"{first}."))
        return "Options" if few else "Common options", rows


def _show_short_help(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(short_page(ctx))
        ctx.exit()


_SHORT_HELP = click.Option(
    ["-h"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_short_help,
    help="Show the common options on one screen and exit.",
)


def short_page(ctx: click.Context) -> str:
    command = ctx.command
    assert isinstance(command, ShortHelp)
    formatter = click.HelpFormatter(max_width=_SCREEN_COLUMNS)
    command.format_usage(ctx, formatter)
    formatter.write_paragraph()
    formatter.write_text(command.short_help or command.help or "")
    heading, rows = command.common(ctx)
    if rows:
        with formatter.section(heading):
            formatter.write_dl(rows, col_max=_NAME_COLUMNS)
    every = examples(command)
    own = [text for text in every if text.split()[1] == command.name]
    _write_examples(formatter, (own or every)[:_FIRST_EXAMPLES])
    formatter.write_paragraph()
    everything = "commands" if isinstance(command, click.Group) else "options"
    grouped = ctx.parent is not None and len(sections(command, ctx)) > 1
    by_group = " by group" if grouped else ""
    formatter.write(f"All {everything}{by_group}: {ctx.command_path} --help\n")
    if grouped:
        groups = [heading.lower() for heading in sections(command, ctx)]
        others = [group for group in groups if group != command.name]
        part = "parquet" if "parquet" in groups else others[0]
        formatter.write(f"One group or option: unloader help {command.name} {part}\n")
    return formatter.getvalue().rstrip("\n")


def part_page(ctx: click.Context, options: Sequence[click.Option]) -> str:
    """Return the part of the context's help page on some options, with an example."""
    formatter = ctx.make_formatter()
    ctx.command.format_usage(ctx, formatter)
    for heading, of_group in sections(ctx.command, ctx).items():
        chosen = (each.get_help_record(ctx) for each in of_group if each in options)
        records = [record for record in chosen if record is not None]
        if records:
            with formatter.section(heading):
                formatter.write_dl(records)
    _write_examples(formatter, examples_with(ctx.command, options))
    return formatter.getvalue().rstrip("\n")


def sections(command: click.Command, ctx: click.Context) -> dict[str, list[click.Option]]:
    """Return the visible options of a command by group, in the order of the help page."""
    found: dict[str, list[click.Option]] = {}
    for parameter in command.get_params(ctx):
        if isinstance(parameter, click.Option) and not parameter.hidden:
            found.setdefault(getattr(parameter, "group", "Options"), []).append(parameter)
    # The groups of this command alone, then the groups of `run` in their order, then --help.
    order = {option.group: at for at, option in enumerate(shared_options(), 1)} | {"Options": 9999}
    return {name: found[name] for name in sorted(found, key=lambda each: order.get(each, 0))}


def options_named(ctx: click.Context, word: str) -> list[click.Option]:
    """Return the options of the group, or the one option, that a word names; empty if none."""
    groups = sections(ctx.command, ctx)
    for heading, options in groups.items():
        if heading.lower() == word.lower():
            return options
    name = word.partition("=")[0].lstrip("-").lower().replace("_", "-")
    every = (option for options in groups.values() for option in options)
    return [
        each
        for each in every
        if name in {written.lstrip("-") for written in (*each.opts, *each.secondary_opts)}
    ]


def examples(command: click.Command) -> list[str]:
    """Return the examples of a command; an example may have several lines."""
    found: list[str] = []
    for line in dedent((command.epilog or "").replace("\b\n", "")).splitlines():
        text = line.strip()
        if line.startswith("      ") and found:
            found[-1] += f"\n    {text}"
        elif text and not text.startswith("Example"):
            found.append(text)
    return found


def _write_examples(formatter: click.HelpFormatter, texts: Sequence[str]) -> None:
    if texts:
        with formatter.section("Examples" if len(texts) > 1 else "Example"):
            for line in "\n".join(texts).splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def examples_with(command: click.Command, options: Iterable[click.Option]) -> list[str]:
    """Return an example of the command with one of the options; else make one of the first."""
    first = next(iter(options))
    known = [text for text in examples(command) if text.split()[1] == command.name]
    named = {flag for option in options for flag in (*option.opts, *option.secondary_opts)}
    fitting = [text for text in known if named & set(re.split(r"[\s=]+", text))]
    if fitting or not isinstance(first, JobOption):
        return fitting[:1] or known[:1]
    option, kind = first.declared, first.declared.kind
    value = option.example or kind.example
    if value.startswith("unloader run "):
        if command.name in READING:
            return [value.replace("unloader run", f"unloader {command.name}", 1)]
        words = value.split()
        value = words[words.index(f"--{option.name}") + 1]
    elif not value and kind.choices:
        value = kind.choices[-1]
    elif not value and not option.is_flag:
        value = kind.shown if option.initial is None else kind.write(option.initial)
    for base in known:
        source = base.split()[2:3]
        scheme, found, place = source[0].partition("://") if source else ("", "", "")
        of_file = place.startswith("/") and option.group == "Source"
        if not found or not (option.key in unknown_to(scheme) or of_file):
            break  # The source in the example, if it has one, knows the option.
    parquet = option.formats == ("parquet",) and "--format" not in base
    output_format = "--format parquet " if parquet else ""
    return [f"{base} \\\n    {output_format}--{option.name} {value}".rstrip()]


_LIKE_AN_OPTION = re.compile(r"-h|--[a-z][a-z0-9-]*(?:=.*)?", re.DOTALL)
_FEW_GROUPS = 5

_NOT_OURS = ("UNLOADER_RUN_", "UNLOADER_TEST_", "UNLOADER_FUZZ_", "UNLOADER_VENV")
"""Beginnings of the variables that a run sets for the command at its end, and of the variables for
the project's tests and examples."""


class JobCommand(ShortHelp):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; surplus arguments are counted, and not repeated.

        A value may begin with `-`, but not look like an option: `--where $CONDITION --overwrite`
        with an empty variable would unload all rows.
        """
        options = (each for each in self.params if isinstance(each, JobOption) and not each.is_flag)
        names = {name for each in options for name in each.opts}
        for name, value in zip_longest(args, args[1:], fillvalue="-h"):
            if name in names and _LIKE_AN_OPTION.fullmatch(value) and not ctx.resilient_parsing:
                raise click.BadOptionUsage(name, f"option {name} needs a value", ctx)
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            many = counted(len(rest), "argument is", "arguments are")
            raise click.UsageError(
                f"{many} too many for {self.name}; an argument with blanks needs quotes", ctx
            )
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Write one notice to stderr on the variables that no option has, and run the command.

        They are not errors: another version of the program may have left them behind.
        """
        ours = sorted(name for name in os.environ if name.startswith("UNLOADER_"))
        unknown = []
        if ours and not ctx.params.get("quiet"):
            known = {*VARIABLES, PASSWORD_VARIABLE, PARQUET_KEY_VARIABLE}
            known.update(name for option in every_option() for name in option.variables)
            for name in ours:
                if name not in known and not name.startswith((*_NOT_OURS, MASKING_KEY_VARIABLE)):
                    near = get_close_matches(name, sorted(known), n=1, cutoff=0.8)
                    unknown.append(f"{name} (did you mean {near[0]}?)" if near else name)
        if unknown:
            streams.notice(f"no option has the variable {', '.join(unknown)}")
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by group, in the order in which the groups first appear."""
        groups = sections(self, ctx)
        if len(groups) > _FEW_GROUPS:
            names = ", ".join(heading.lower() for heading in groups)
            formatter.write_paragraph()
            formatter.write_text(f"Groups: {names}. One alone: unloader help {self.name} GROUP.")
        for heading, options in groups.items():
            records = [record for record in (o.get_help_record(ctx) for o in options) if record]
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def declared(
    name: str,
    summary: str,
    examples: str,
    *,
    by_hand: Collection[str] = (),
    context_settings: dict[str, Any] | None = None,
) -> Callable[[Callable[..., None]], click.Command]:
    """Return the decorator that makes a function the command of this name, with its options.

    The examples are one a line, and their further lines are indented. The help page shows no
    variable for the options `by_hand`, which only the command line sets.
    """
    lines = dedent(examples).strip()
    title = "Examples" if "\nunloader" in lines else "Example"

    def decorate(function: Callable[..., None]) -> click.Command:
        made = click.command(
            name,
            cls=JobCommand,
            short_help=summary,
            epilog=f"\b\n{title}:\n{indent(lines, '  ')}",
            context_settings=context_settings,
        )(function)
        made.params += map(JobOption, options_of(name))
        for option in made.params:
            if option.name in by_hand and isinstance(option, JobOption):
                option.show_envvar = False
        return made

    return decorate
