"""A command with the options that are declared for it, by groups on its help page."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import Any

import click

from unloader.cli.display import json_lines
from unloader.cli.options.help_pages import ShortHelp, sections
from unloader.cli.options.parameter import JobOption
from unloader.cli.streams import was_closed
from unloader.errors import UsageError
from unloader.nouns import counted
from unloader.redaction import MASKING_KEY_VARIABLE, PARQUET_KEY_VARIABLE, PASSWORD_VARIABLE
from unloader.request.options import every_option, options_of
from unloader.sources.registry import VARIABLES

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
    """Return the decorator that gives a command its declared options.

    Args:
        command: Its name; empty for the program itself.
        by_hand: Options, with underscores, that only the command line sets: the help page shows no
            variable for them.
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
    ctx: click.Context, option: click.Parameter, value: tuple[tuple[str, ...], ...]
) -> tuple[tuple[str, ...], ...]:
    """Keep the JSON of an error off a standard output that is for data."""
    if any("-" in places for places in value) and ctx.obj is not None:
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
