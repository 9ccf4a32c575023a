"""`unloader help`: the help page of the program, or of one command."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from unloader.cli.options.command import JobCommand


def _complete(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the commands that begin so."""
    parent = context.parent
    if parent is None or not isinstance(parent.command, click.Group):
        return []
    names = parent.command.list_commands(parent)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command(
    "help",
    cls=JobCommand,
    short_help="Show the help page of a command.",
    epilog="""\b
    Examples:
      unloader help
      unloader help run
    """,
)
@click.argument("name", metavar="COMMAND", required=False, shell_complete=_complete)
@click.pass_context
def command(context: click.Context, /, name: str | None) -> None:
    """Show what the program does and its commands, or one COMMAND with all its options."""
    parent = context.parent
    assert parent is not None
    assert isinstance(parent.command, click.Group)
    if name is None:
        click.echo(parent.get_help())
        return
    found = parent.command.get_command(parent, name)
    if found is None:
        raise click.UsageError(f"No such command {name!r}.", parent)
    with click.Context(found, info_name=name, parent=parent) as shown:
        click.echo(found.get_help(shown))
