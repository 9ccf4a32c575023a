"""Help pages: one screen for a command, and the part on one group or option alone.

The page with all options is click's own, with a heading for each group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from textwrap import dedent

import click

from unloader.cli.options.parameter import JobOption
from unloader.request.option import READING, Option
from unloader.sources.registry import unknown_to

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
        rows = [_row(each, ctx) for each in declared if few or each.declared.common]
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
        formatter.write(f"One group or option: unloader help {command.name} {_a_part(ctx)}\n")
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
    return [each for each in every if name in _names(each)]


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


def _names(option: click.Option) -> set[str]:
    return {name.lstrip("-") for name in (*option.opts, *option.secondary_opts)}


def _row(option: JobOption, ctx: click.Context) -> tuple[str, str]:
    record = option.get_help_record(ctx)
    assert record is not None
    return record[0], f"{(option.help or '').split('. ')[0].rstrip('.')}."


def _a_part(ctx: click.Context) -> str:
    """Return a group to show as an example: Parquet where the command has it."""
    groups = [heading.lower() for heading in sections(ctx.command, ctx)]
    others = [group for group in groups if group != ctx.command.name]
    return "parquet" if "parquet" in groups else others[0]


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
    return [_example_of(command, known, first.declared)]


def _example_of(command: click.Command, known: Sequence[str], option: Option) -> str:
    value = option.example or _value_of(option)
    if value.startswith("unloader run "):
        if command.name in READING:
            return value.replace("unloader run", f"unloader {command.name}", 1)
        words = value.split()
        value = words[words.index(f"--{option.name}") + 1]
    base = next(text for text in known if _takes(text, option))
    parquet = option.formats == ("parquet",) and "--format" not in base
    output_format = "--format parquet " if parquet else ""
    return f"{base} \\\n    {output_format}--{option.name} {value}".rstrip()


def _value_of(option: Option) -> str:
    if option.is_flag:
        return ""
    if option.kind.choices:
        return option.kind.choices[-1]
    return option.kind.shown if option.initial is None else option.kind.write(option.initial)


def _takes(example: str, option: Option) -> bool:
    """Return whether the source in an example, if it has one, knows an option."""
    source = example.split()[2:3]
    scheme, found, place = source[0].partition("://") if source else ("", "", "")
    if not found:
        return True
    is_file = place.startswith("/")
    return option.key not in unknown_to(scheme) and not (is_file and option.group == "Source")
