"""Variables UNLOADER_ that set nothing, which somebody may have misspelt."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click

from unloader.cli.display.json_log import writing
from unloader.redaction import MASKING_KEY_VARIABLE, PARQUET_KEY_VARIABLE, PASSWORD_VARIABLE
from unloader.sources.options import every_option, source_variables

NOT_OURS = ("UNLOADER_RUN_", "UNLOADER_TEST_", "UNLOADER_FUZZ_", "UNLOADER_VENV")
"""Beginnings of the variables that a run sets for the command at its end, and of those that the
project's tests and examples take."""


def tell_unknown_variables(values: Mapping[str, Any]) -> None:
    """Write one notice to stderr on the variables that no option has, unless it shall be quiet.

    They are no error: another version of the program may have left them behind.

    Args:
        values: The options of the command by their names with underscores.
    """
    if values.get("quiet"):
        return
    unknown = unknown_variables()
    if not unknown:
        return
    text = "no option has the variable " + ", ".join(map(_with_guess, unknown))
    if writing.is_on():
        with suppress(OSError):
            writing.write("notice", {"text": text})
    else:
        click.echo(f"unloader: notice: {text}", err=True)


def unknown_variables() -> tuple[str, ...]:
    """Return the variables with our prefix that nothing reads, by name."""
    known = _known()
    ours = (name for name in os.environ if name.startswith("UNLOADER_"))
    others = (*NOT_OURS, MASKING_KEY_VARIABLE)
    return tuple(sorted(name for name in ours if name not in known and not name.startswith(others)))


def _known() -> frozenset[str]:
    options = (name for option in every_option() for name in option.variables)
    return source_variables() | {PASSWORD_VARIABLE, PARQUET_KEY_VARIABLE, *options}


def _with_guess(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(_known()), n=1, cutoff=0.8)
    return f"{name} (did you mean {near[0]}?)" if near else name
