"""A route as it stands on the command line: `NAME:KEY=VALUE,KEY=VALUE`.

A value with a comma in it stands in double quotes, in which `""` is a quote.
"""

from __future__ import annotations

import re

from unloader.request.job.grammar import ROUTE_NAME

RouteText = tuple[str, tuple[tuple[str, str], ...]]
"""Name, and keys with their values."""

_PAIR = re.compile(r'\s*([A-Za-z][A-Za-z_-]*)\s*=\s*(?:"((?:[^"]|"")*)"|([^,"]*))\s*(,|$)')
_HOW = "write NAME:KEY=VALUE,KEY=VALUE, and a value with a comma in double quotes"


def parse_route(text: str) -> RouteText:
    """Return name and values of a route.

    Raises:
        ValueError: It is none; the message is fit for the user.
    """
    name, colon, rest = text.partition(":")
    if not colon or not ROUTE_NAME.fullmatch(name.strip()):
        raise ValueError(f"a route begins with its name and a colon; {_HOW}")
    name = name.strip()
    found: dict[str, str] = {}
    at = 0
    while at < len(rest):
        pair = _PAIR.match(rest, at)
        if pair is None:
            # What stands there is not shown: it may be anything.
            raise ValueError(f"route {name} cannot be read from character {at + 1} on; {_HOW}")
        key, quoted, plain, end = pair.groups()
        key = key.replace("-", "_").lower()
        if key in found:
            raise ValueError(f"route {name} has the key {key.replace('_', '-')!r} twice")
        found[key] = plain.strip() if quoted is None else quoted.replace('""', '"')
        at = pair.end()
        if end == "," and at == len(rest):
            raise ValueError(f"route {name} ends with a comma; {_HOW}")
    return name, tuple(found.items())
