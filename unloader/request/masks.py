"""How people write masks and the places of their keys: text in, plain values out.

What cannot be understood is a `ValueError` whose message is fit for the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from msgspec.structs import fields

from unloader.request.settings import parse_assignment
from unloader.transforms.model import MASKS, Step

_PARAMETER = re.compile(
    r'\s*([a-z0-9_-]+)\s*(?:=\s*(?:"((?:[^"]|"")*)"\s*|([^,"]*)))?(?:,|$)', re.DOTALL
)
_KEY_PLACE = re.compile(
    r"(?:([a-z][a-z0-9-]{0,62})=)?((?:file|env|keyring|credential):\S.*)", re.DOTALL
)


def parse_mask(item: str) -> Step:
    """Return the mask that `COLUMN=METHOD,PARAMETER=VALUE,...` means.

    A value with a comma in it is in double quotes, and a double quote in such a value is written
    twice.

    Raises:
        ValueError: A method or parameter is unknown, one is missing, or a value is invalid.
    """
    column, text = parse_assignment(item)
    (method, chosen), *pairs = _parts(column, text)
    methods = "use one of " + ", ".join(MASKS)
    if chosen is not None:
        raise ValueError(f"the mask of {column} does not begin with a method; {methods}")
    given: dict[str, str] = {}
    for name, value in pairs:
        if value is None or name in given:
            raise ValueError(f"the mask of {column} has {name} twice, or without a value")
        given[name] = value
    if method not in MASKS:
        raise ValueError(f"unknown mask {method!r}; {methods}")
    (_, *needed), optional = MASKS[method]
    names = (*needed, *optional)
    kinds = {each.name: each.type for each in fields(Step) if each.name in names}
    found: dict[str, Any] = {"step": method, "column": column}
    for name, value in given.items():
        if name not in kinds:
            listed = ", ".join(names) or "none"
            raise ValueError(f"the mask {method} has no parameter {name!r}; it has {listed}")
        kind = kinds[name]
        if get_origin(kind) is Literal and value not in get_args(kind):
            words = ", ".join(filter(None, get_args(kind)))
            raise ValueError(f"{name} of the mask {method} is one of {words}")
        if kind is int and not re.fullmatch("[0-9]{1,9}", value):
            raise ValueError(f"{name} of the mask {method} is a whole number")
        found[name] = int(value) if kind is int else value
    return Step(**found)


def _parts(column: str, text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the words between commas, each with its value or None."""
    at = 0
    while at <= len(text):
        match = _PARAMETER.match(text, at)
        if match is None:
            raise ValueError(
                f"the mask of {column} is not METHOD,PARAMETER=VALUE,...; put double quotes around "
                "a value with a comma or a quote"
            )
        name, quoted, plain = match.groups()
        value = plain and plain.strip() if quoted is None else quoted.replace('""', '"')
        yield name, value
        if match.end() == len(text) and not match[0].endswith(","):
            return
        at = match.end()


def parse_key_place(item: str) -> tuple[str, str]:
    """Return the name of a key, empty for the usual one, and where it is found.

    Raises:
        ValueError: It has another form. It is not shown: it may be the key.
    """
    match = _KEY_PLACE.fullmatch(item.strip())
    if match is None:
        raise ValueError(
            "the value is not a place of a key, and is not shown; write file:PATH, env:VARIABLE, "
            "keyring:SERVICE/USER or credential:NAME, with NAME= before it if there are "
            "several keys"
        )
    return match[1] or "", match[2]


def quoted_value(text: str) -> str:
    """Return the value of a parameter so that it is one."""
    if re.fullmatch(r'[^,"\s][^,"]*', text) and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'
