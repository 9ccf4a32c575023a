"""Which kinds of TOML values each option takes in a job file or a plan file."""

from __future__ import annotations

from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import click

from unloader.cli.options.option_types import NumberList, Typed
from unloader.errors import UsageError
from unloader.request.job_file import place_in

_KINDS = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number with a fraction",
    datetime: "a date with a time",
    date: "a date",
    time: "a time",
    list: "a list",
    dict: "a table",
}


def check_value(option: click.Option, key: str, value: Any, path: str) -> None:
    """Check that a value of a file is of a kind that the option takes.

    A date or a number in place of text would pass for its own text, which need not be the one that
    was meant.

    Raises:
        UsageError: It is not; the message names file, line and key, and what is expected.
    """
    if _fits(option, value):
        return
    raise UsageError(
        f"{place_in(Path(path), key)}: the key {key.replace('_', '-')!r} is {_kind(value)}",
        f"give it {_expected(option)}",
    )


def _fits(option: click.Option, value: Any) -> bool:
    if option.is_flag:
        return type(value) is bool
    kinds = _takes(option)
    if type(value) is list:
        items = (int, str) if isinstance(option.type, NumberList) else (str,)
        lists = option.multiple or isinstance(option.type, NumberList)
        return lists and all(type(each) in items for each in value)
    if type(value) is dict:
        # Text, too: such as "20" for a width of 20 bytes.
        return dict in kinds and all(type(each) in (int, str) for each in value.values())
    # By type, for a bool is an int to isinstance.
    return type(value) in kinds


def _takes(option: click.Option) -> tuple[type, ...]:
    if isinstance(option.type, Typed):
        return option.type.takes
    # A plan file has numbers as they were written on the command line.
    return (int, str) if isinstance(option.type, click.IntRange) else (str,)


def _expected(option: click.Option) -> str:
    if option.is_flag:
        return "true or false"
    if isinstance(option.type, Typed):
        return option.type.expected
    return "a whole number" if isinstance(option.type, click.IntRange) else "text in quotes"


def _kind(value: Any) -> str:
    kind = _KINDS.get(type(value), type(value).__name__)
    if isinstance(value, (list, dict)) and value:
        items = value.values() if isinstance(value, dict) else value
        wrong = next((each for each in items if type(each) is not str), None)
        return kind if wrong is None else f"{kind} that holds {_KINDS.get(type(wrong), 'others')}"
    return kind
