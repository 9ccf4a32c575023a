"""`unloader help` and `unloader completion`: help pages, and completion in a shell."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from unloader.cli.display import render
from unloader.cli.group import COMPLETION_VARIABLE
from unloader.cli.mistakes import no_command, no_part
from unloader.cli.options.command import declared, options_named, part_page, sections
from unloader.errors import OutputFailed, UsageError

STATUSES = {
    0: "done",
    1: "a fault in unloader itself",
    2: "an option is wrong, or two options contradict each other: on the command line, in a "
    "variable or in a job file",
    3: "configuration or machine: a driver is missing; a file cannot be read; workers cannot "
    "be placed as requested; the operating system refuses more memory, open files or "
    "processes",
    4: "the source refused, failed or disconnected",
    5: "no plan: the table cannot be split as requested, or the plan file is not valid, or "
    "the table has changed since the plan",
    6: "the destination or the output format refused",
    7: "some work units failed after all attempts, or some of several tables are not complete",
    8: "the numbers of rows in the source and in the files differ, or a file differs from "
    "its manifest",
    9: "done, but the result could not be written to standard output",
    10: "done, but a later step failed: `--latest-link`, `--report`, or the command of "
    "`--on-success`",
    130: "stopped by SIGINT, SIGTERM or SIGHUP, or by `unloader stop`",
}
"""The meaning of each exit status."""

_STATUS_WORDS = ("exit-statuses", "exit-status", "exit-codes", "exit-code", "statuses")


def _complete(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the commands that begin so, or the groups and options of the command before."""
    parent = context.parent
    if parent is None or not isinstance(parent.command, click.Group):
        return []
    given: tuple[str, ...] = context.params.get(str(parameter.name)) or ()
    found = parent.command.get_command(parent, given[0]) if given else None
    if found is None:
        names = parent.command.list_commands(parent)
    else:
        groups = sections(found, click.Context(found, info_name=given[0], parent=parent))
        names = [heading.lower() for heading in groups]
        names += [each.opts[0].lstrip("-") for options in groups.values() for each in options]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@declared(
    "help",
    "Show the help page of a command, or a part of it.",
    """
    unloader help run
    unloader help run parquet
    unloader help run --parallelism
    """,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("words", metavar="[COMMAND [GROUP|OPTION]...]", nargs=-1, shell_complete=_complete)
@click.pass_context
def help_page(context: click.Context, /, words: tuple[str, ...]) -> None:
    """Show all commands, all options of one COMMAND, or a part of them.

    A part is a group of options or one option. The dashes of an option may be left out. The names
    of the groups are the headings of the page of the command. `unloader help exit-statuses` shows
    the exit statuses.
    """
    parent = context.parent
    assert parent is not None
    assert isinstance(parent.command, click.Group)
    if not words:
        click.echo(parent.get_help())
        return
    name, *parts = words
    if name in _STATUS_WORDS:
        click.echo(render.facts((str(status), text) for status, text in STATUSES.items()))
        return
    found = parent.command.get_command(parent, name)
    if found is None:
        run = parent.command.get_command(parent, "run")
        assert run is not None
        meant = options_named(click.Context(run, info_name="run", parent=parent), name)
        if meant:
            # The word itself may have a secret after a =, so it is not shown.
            group = getattr(meant[0], "group", "").lower()
            word = meant[0].opts[0] if len(meant) == 1 else group
            raise UsageError("unknown command", f"did you mean unloader help run {word}?")
        raise no_command(name, parent.command.list_commands(parent))
    with click.Context(found, info_name=name, parent=parent) as shown:
        chosen = []
        for part in parts:
            options = options_named(shown, part)
            if not options:
                raise no_part(shown, part, [each.lower() for each in sections(found, shown)])
            chosen += options
        click.echo(part_page(shown, chosen) if parts else found.get_help(shown))


_SHELLS = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/unloader"),
    "zsh": ("XDG_DATA_HOME", ".local/share", "zsh/site-functions/_unloader"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/unloader.fish"),
}
"""The variable of a base directory, its default below the home, and the file of the script."""


@declared(
    "completion",
    "Install completion for bash, zsh or fish.",
    """
    unloader completion bash
    unloader completion zsh --output ~/.zfunc/_unloader
    """,
)
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(context: click.Context, /, shell: str, output: str | None) -> None:
    """Write the script of a SHELL to the file in which the shell looks for it.

    A new shell then completes commands, options, and the values of options that have a list.
    """
    parent, known = context.parent, get_completion_class(shell)
    assert parent is not None
    assert known is not None
    script = known(parent.command, {}, "unloader", COMPLETION_VARIABLE).source()
    if output == "-":
        render.emit(script)
        return
    variable, usual, name = _SHELLS[shell]
    place = Path(output or Path(os.environ.get(variable) or Path.home() / usual) / name)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(script, encoding="utf-8")
    except OSError as error:
        raise OutputFailed(
            f"{place} cannot be written: {error.strerror}", "choose another file with --output"
        ) from error
    after = {
        "bash": "bash needs version 4.4 and the package bash-completion to find it",
        "zsh": f"add this line to ~/.zshrc before compinit: fpath+=({place.parent})",
        "fish": "fish finds it there",
    }
    render.emit(f"wrote {place}; {after[shell]}")
