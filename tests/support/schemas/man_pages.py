"""The manual pages: `unloader.1` and one for each command, from the declarations.

python tests/support/schemas/man_pages.py man
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from unloader.cli.commands.help import STATUSES
from unloader.cli.group import COMMANDS, group
from unloader.cli.options.command import JobOption, examples, sections


def pages() -> dict[str, str]:
    """Return the texts of all pages by their file names."""
    root = click.Context(group, info_name="unloader")
    commands = [each for name in COMMANDS if (each := group.get_command(root, name)) is not None]
    found = {"unloader.1": "\n".join((*_page(group, root), *_ends(commands)))}
    for each in commands:
        context = click.Context(each, info_name=each.name, parent=root)
        found[f"unloader-{each.name}.1"] = "\n".join((*_page(each, context), *_see_also()))
    return {name: text + "\n" for name, text in found.items()}


def _page(command: click.Command, context: click.Context) -> Iterator[str]:
    name = context.command_path.replace(" ", "-")
    paragraphs = (command.help or "").replace("\b\n", "").split("\n\n")
    yield f'.TH {_text(name.upper())} 1 "" "unloader" "User Commands"'
    yield f".SH NAME\n{_text(name)} \\- {_text(_first_sentence(paragraphs[0]))}"
    yield f".SH SYNOPSIS\n.B {_text(context.command_path)}"
    if isinstance(command, click.Group):
        yield "COMMAND [OPTIONS]"
    else:
        arguments = (each for each in command.params if isinstance(each, click.Argument))
        shown = (each.make_metavar(context) for each in arguments)
        yield _text(" ".join((*shown, "[OPTIONS]")))
    yield ".SH DESCRIPTION"
    yield "\n.PP\n".join(_text(" ".join(part.split())) for part in paragraphs)
    for heading, options in sections(command, context).items():
        yield f'.SH "{_text(heading.upper())}"'
        for option in options:
            yield from _option(option)
    yield ".SH EXAMPLES\n.nf"
    yield from (_text(each) for each in examples(command))
    yield ".fi"


def _option(option: click.Option) -> Iterator[str]:
    names = ", ".join((*option.opts, *option.secondary_opts))
    help_, shown = option.help or "", ""
    if isinstance(option, JobOption):
        help_ = option.declared.help
        shown = "" if option.is_flag else option.declared.metavar or option.declared.kind.shown
        if isinstance(option.show_default, str):
            help_ += f" Default: {option.show_default}."
        elif isinstance(option.default, (str, int)) and not option.is_flag:
            help_ += f" Default: {option.default}."
    yield f".TP\n\\fB{_text(names)}\\fR" + (f" \\fI{_text(shown)}\\fR" if shown else "")
    yield _text(" ".join(help_.split()))


def _ends(commands: list[click.Command]) -> Iterator[str]:
    """Yield the parts that only the page of the program has."""
    yield ".SH COMMANDS"
    for each in commands:
        yield f".TP\n.BR unloader\\-{_text(str(each.name))} (1)\n{_text(each.get_short_help_str(200))}"
    yield '.SH "EXIT STATUS"'
    for code, meaning in STATUSES.items():
        yield f".TP\n.B {code}\n{_text(meaning)}"
    yield ".SH ENVIRONMENT"
    yield r"The variable UNLOADER_\fINAME\fR sets the option \-\-\fIname\fR of a command."
    yield "An option of the command line overrides a variable, and a variable overrides a job file."


def _see_also() -> Iterator[str]:
    yield '.SH "SEE ALSO"\n.BR unloader (1)'


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[a-z`)])\. |\.$", " ".join(text.split()))[0]


def _text(text: str) -> str:
    """Return a text without marks of Markdown, with the signs of roff escaped."""
    lines = text.replace("\\", r"\e").replace("`", "").replace("-", r"\-").split("\n")
    return "\n".join(rf"\&{line}" if line[:1] in (".", "'") else line for line in lines)


if __name__ == "__main__":
    for name, text in pages().items():
        Path(sys.argv[1], name).write_text(text, "utf-8")
