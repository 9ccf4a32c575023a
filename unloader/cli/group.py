"""The group `unloader` and its commands; a command's module is imported when it is asked for."""

from __future__ import annotations

import logging
import os
import resource
import sys
from contextlib import suppress
from importlib import import_module

import click
from click.shell_completion import shell_complete

from unloader import __version__
from unloader.cli import streams
from unloader.cli.display import render
from unloader.cli.mistakes import no_command
from unloader.cli.options.command import JobOption, ShortHelp, short_page
from unloader.cli.streams import Invocation
from unloader.errors import UsageError
from unloader.request.options import options_of

COMMANDS = {
    "demo": "installation",
    "describe": "plan",
    "init": "jobs",
    "check": "jobs",
    "codecs": "measuring",
    "plan": "plan",
    "run": "run",
    "resume": "run",
    "merge": "finished",
    "verify": "finished",
    "clean": "finished",
    "status": "runs",
    "runs": "runs",
    "stop": "runs",
    "set": "runs",
    "report": "finished",
    "keepers": "finished",
    "preflight": "measuring",
    "sweep": "sweep",
    "size": "measuring",
    "network": "network",
    "topology": "installation",
    "formats": "installation",
    "sources": "installation",
    "completion": "help",
    "help": "help",
}
"""In the order of the help page; each command with its module in `unloader.cli.commands`."""

COMMON = ("demo", "describe", "init", "check", "plan", "run", "resume", "verify", "status", "help")
"""The commands on the first screen."""

COMPLETION_VARIABLE = "_UNLOADER_COMPLETE"


class Group(ShortHelp, click.Group):
    """A group that knows its commands by name only."""

    def common(self, ctx: click.Context) -> tuple[str, list[tuple[str, str]]]:
        """Return the heading and the rows of the first screen: the common commands."""
        commands = ((name, self.get_command(ctx, name)) for name in COMMON)
        return "Common commands", [(name, each.short_help or "") for name, each in commands if each]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they are of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing its module; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module = vars(import_module(f"unloader.cli.commands.{COMMANDS[cmd_name]}"))
        commands = (each for each in module.values() if isinstance(each, click.Command))
        return next(each for each in commands if each.name == cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; UsageError for an unknown one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise no_command(args[0], COMMANDS)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["--help"], "max_content_width": 100},
    epilog="""\b
    Examples:
      unloader demo --rows 200k
      unloader describe duckdb:///data/sales.db
      unloader run duckdb:///data/sales.db --table ORDERS --to /extract/orders
    """,
)
@click.version_option(
    __version__, "-V", "--version", prog_name="unloader", help="Show the version."
)
@click.pass_context
def group(context: click.Context, debug: bool) -> None:
    """Unload big database tables to CSV or Parquet, exactly and from one point in time."""
    invocation = context.ensure_object(Invocation)
    invocation.debug = debug
    if not debug:
        # No core dumps of this process and of the processes that it starts: memory has secrets.
        # The kernel writes no file of one byte, and unlike at 0 it asks no program of core_pattern,
        # such as systemd-coredump, to take the dump: see do_coredump() in its fs/coredump.c.
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        least = 1 if most == resource.RLIM_INFINITY else min(1, most)
        resource.setrlimit(resource.RLIMIT_CORE, (least, most))
    else:

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                facts = {
                    "level": record.levelname,
                    "logger": record.name,
                    "text": self.format(record),
                }
                with suppress(OSError):  # An unread log does not fail the run.
                    line = render.lines("{level} {logger}: {text}".format(**facts))
                    streams.write("debug", facts, line)

        logging.basicConfig(handlers=[Handler()], format="%(message)s")
        for name in ("unloader", "partition_planner", "writers", "numa"):
            logging.getLogger(name).setLevel(logging.DEBUG)
    if context.invoked_subcommand is None:
        click.echo(short_page(context), err=True)
        context.exit(2)


group.params[:0] = map(JobOption, options_of(""))


def dispatch(arguments: list[str], invocation: Invocation) -> int:
    """Run the command that the arguments name, or answer the shell if it asks for completion.

    click's own `main` is not used: it ends the program silently on any broken pipe, also a
    worker's.
    """
    streams.switch(streams.asked_for(arguments))
    # A manifest could not hold other text, and no database would know it.
    texts = {f"the argument {place}": text for place, text in enumerate(arguments, 1)}
    texts |= {
        f"the variable {name}": value
        for name, value in os.environ.items()
        if name.startswith("UNLOADER_")
    }
    for what, text in texts.items():
        if any("\ud800" <= each <= "\udfff" for each in text):
            encoding = sys.getfilesystemencoding()
            raise UsageError(
                f"{what} holds bytes that are not text in {encoding}",
                f"write it in {encoding}, or set LC_ALL to its encoding",
            )
    instruction = os.environ.get(COMPLETION_VARIABLE)
    if instruction:
        return int(shell_complete(group, {}, "unloader", COMPLETION_VARIABLE, instruction))
    try:
        with group.make_context("unloader", arguments, obj=invocation) as context:
            group.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    return 0
