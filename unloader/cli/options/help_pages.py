"""Help pages: one screen for a command, and the part on one group or option alone.

The page with all options is click's own, with a heading for each group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from textwrap import dedent

import click

from unloader.cli.options.parameter import JobOption
from unloader.request.option import READING
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
