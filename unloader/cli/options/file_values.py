"""Which kinds of TOML values each option takes in a job file or a plan file."""

from __future__ import annotations

from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from unloader.errors import UsageError
from unloader.request.job_file import place_in
from unloader.request.options.option import Option

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


def check_value(option: Option, key: str, value: Any, path: str) -> None:
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
        f"give it {option.kind.expected}",
    )


def _fits(option: Option, value: Any) -> bool:
    if option.is_flag:
        return type(value) is bool
    kind = option.kind
    if type(value) is list:
        items = kind.takes if kind.lists else (str,)
        return (option.multiple or kind.lists) and all(type(each) in items for each in value)
    if type(value) is dict:
        # Text, too: such as "20" for a width of 20 bytes.
        return dict in kind.takes and all(type(each) in (int, str) for each in value.values())
    # By type, for a bool is an int to isinstance.
    return type(value) in kind.takes


def _kind(value: Any) -> str:
    kind = _KINDS.get(type(value), type(value).__name__)
    if isinstance(value, (list, dict)) and value:
        items = value.values() if isinstance(value, dict) else value
        wrong = next((each for each in items if type(each) is not str), None)
        return kind if wrong is None else f"{kind} that holds {_KINDS.get(type(wrong), 'others')}"
    return kind
