"""Which values each option takes in a job file or a plan file, and what they mean."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Any

from unloader.request.option import Option
from unloader.request.settings import at_home
from unloader.request.value_types import Assignments, Parsed

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


def wrong_kind(option: Option, value: Any) -> str:
    """Return what kind a value of a file is of if the option does not take it; else nothing.

    A date or a number in place of text would pass for its own text, which need not be the one that
    was meant.
    """
    return "" if _fits(option, value) else _kind(value)


def as_given(option: Option, value: Any) -> Any:
    """Return a value of a file in the form that the command line takes it in."""
    if isinstance(value, float):
        return str(value)  # As it is written: 12.5 must not become the whole number 12.
    if option.multiple:
        # The items of a list are names already; only text is cut at its commas.
        return [tuple(map(str, value))] if isinstance(value, list) else [value]
    return value


def meaning(option: Option, value: Any) -> Any:
    """Return what a value means; of a repeated option, all its items.

    Raises:
        ValueError: It means nothing; the message is fit for the user.
    """
    given = as_given(option, value)
    if option.multiple:
        return tuple(item for each in given for item in _read(option, each))
    return _read(option, given)


def _read(option: Option, value: Any) -> Any:
    kind = option.kind
    if option.is_flag:
        return value
    texts = value if isinstance(value, tuple) else (value,)
    if not isinstance(kind, Parsed) and any("\0" in str(each) for each in texts):
        # No system call and no database takes it; a delimiter may be one.
        raise ValueError("it holds the character NUL")
    read = kind.read(value)
    if not kind.is_path:
        return read
    return tuple(map(at_home, read)) if isinstance(read, tuple) else at_home(read)


def _fits(option: Option, value: Any) -> bool:
    if option.is_flag:
        return type(value) is bool
    kind = option.kind
    if type(value) is list:
        items = kind.takes if kind.lists else (str,)
        return (option.multiple or kind.lists) and all(type(each) in items for each in value)
    if type(value) is dict:
        # Text, too: such as "20" for a width of 20 bytes.
        nested = isinstance(kind, Assignments) and kind.nested
        return dict in kind.takes and all(
            type(each) in (int, str) or (nested and _is_flat(each)) for each in value.values()
        )
    # By type, for a bool is an int to isinstance.
    return type(value) in kind.takes


def _is_flat(value: Any) -> bool:
    """Return whether a value is a table of texts and whole numbers."""
    return type(value) is dict and all(type(each) in (int, str) for each in value.values())


def _kind(value: Any) -> str:
    kind = _KINDS.get(type(value), type(value).__name__)
    if isinstance(value, (list, dict)) and value:
        items = value.values() if isinstance(value, dict) else value
        wrong = next((each for each in items if type(each) is not str), None)
        return kind if wrong is None else f"{kind} that holds {_KINDS.get(type(wrong), 'others')}"
    return kind
