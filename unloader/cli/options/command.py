"""A command with its declared options, by groups on its help page, on one screen, or one alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from textwrap import dedent
from typing import Any

import click

from unloader.cli.display import json_lines
from unloader.cli.options.parameter import JobOption
from unloader.cli.streams import was_closed
from unloader.errors import UsageError
from unloader.nouns import counted
from unloader.redaction import MASKING_KEY_VARIABLE, PARQUET_KEY_VARIABLE, PASSWORD_VARIABLE
from unloader.request.option import READING
from unloader.request.options import every_option, options_of
from unloader.sources.registry import VARIABLES, unknown_to

_SCREEN_COLUMNS = 80
_NAME_COLUMNS = 33
"""Width of the widest common option, `--verify [none|count|full|source]`."""

_FEW_OPTIONS = 6
"""A command with at most this many options shows all of them on its first screen."""

_FIRST_EXAMPLES = 2


class ShortHelp(click.Command):
    """A command that answers `-h` with one screen, and `--help` with everything."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters of the command, with `-h` before `--help`."""
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
    return found


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


_FEW_GROUPS = 5

_NOT_OURS = ("UNLOADER_RUN_", "UNLOADER_TEST_", "UNLOADER_FUZZ_", "UNLOADER_VENV")
"""Beginnings of the variables that a run sets for the command at its end, and of the variables for
the project's tests and examples."""


class JobCommand(ShortHelp):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; surplus arguments are counted, and not repeated."""
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
            json_lines.notice(f"no option has the variable {', '.join(unknown)}")
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


def declared_options(
    command: str, *, by_hand: Collection[str] = ()
) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """Return the decorator that gives a command its declared options; `""` is the program itself.

    The help page shows no variable for the options `by_hand`, which only the command line sets.
    """

    def decorate(function: click.decorators.FC) -> click.decorators.FC:
        parameters: list[click.Option] = []
        for declared in options_of(command):
            option = JobOption(declared)
            option.show_envvar = option.name not in by_hand
            if declared.name == "log-format":
                # As early as the job file, so that errors in other options have this format.
                option.callback, option.is_eager = _log_in, True
            elif declared.name == "route":
                # Before --to: each route has its own.
                option.is_eager = True
            elif declared.name == "json":
                option.callback = _answer_json
            elif declared.name == "to" and declared.required:
                option.callback = _answer_beside_data
            parameters.append(option)
        if any(option.name == "password_file" for option in parameters):
            refused = click.Option(
                ["--password"],
                hidden=True,
                expose_value=False,
                callback=_refuse_password,
                help="Refused: other users can read a command line.",
            )
            parameters.append(refused)
        if isinstance(function, click.Command):
            function.params.extend(parameters)
        else:
            # As click's own decorators do: the last one applied comes first.
            known = getattr(function, "__click_params__", [])
            function.__click_params__ = [*known, *reversed(parameters)]  # type: ignore[attr-defined]
        return function

    return decorate


def _refuse_password(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None:
        raise click.UsageError(
            "a password on the command line can be read by every user of this machine; set "
            "UNLOADER_PASSWORD, or use --password-file or --password-prompt",
            ctx,
        )


def _answer_beside_data(
    ctx: click.Context, option: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Keep the JSON of an error off a standard output that is for data."""
    if "-" in value and ctx.obj is not None:
        ctx.obj.data_on_stdout = True
    return value


def _log_in(ctx: click.Context, option: click.Parameter, value: str) -> str:
    json_lines.switch(value == "json")
    return value


def _answer_json(ctx: click.Context, option: click.Parameter, value: bool) -> bool:
    if value and was_closed(1):
        raise UsageError(
            "--json needs standard output, and it is closed", "send it to a file or a reader"
        )
    if value and ctx.obj is not None:
        ctx.obj.json = True
    return value
