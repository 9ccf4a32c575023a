"""The commands; each is declared by its name, a summary and examples."""

from __future__ import annotations

from collections.abc import Callable, Collection
from textwrap import dedent, indent
from typing import Any

import click

from unloader.cli.options.command import JobCommand, declared_options


def declared(
    name: str,
    summary: str,
    examples: str,
    *,
    by_hand: Collection[str] = (),
    context_settings: dict[str, Any] | None = None,
) -> Callable[[Callable[..., None]], click.Command]:
    """Return the decorator that makes a function the command of this name, with its options.

    The examples are one a line, and their further lines are indented. `by_hand` is as
    `declared_options` takes it.
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
        return declared_options(name, by_hand=by_hand)(made)

    return decorate
