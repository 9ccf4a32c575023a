"""The source's password, or another secret, typed where it does not belong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from unloader.errors import UsageError
from unloader.redaction import holds_secret

_NEVER_SHOWN = ("session_sql", "on_success", "on_failure")
"""Options in no log and no manifest: a statement may need a password, a command a token."""


def refuse_repeated(location: str, values: Mapping[str, Any]) -> None:
    """Refuse what holds a secret itself: it would go into the manifest and the plan.

    Hiding it there would not do: a condition with `***` in it means other rows.

    Args:
        location: Of the source.
        values: Every option by its name with underscores.

    Raises:
        UsageError: One holds it.
    """
    for name, value in (("the source URL", location), *values.items()):
        if name not in _NEVER_SHOWN and any(map(holds_secret, _texts(value))):
            what = name if name == "the source URL" else "--" + name.replace("_", "-")
            raise UsageError(
                f"{what} holds the password of the source, or another secret that is in a file or "
                "a variable of the environment; it would be shown and recorded",
                "take it out; if it is there by chance, change the secret",
            )


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a value, such as those of the pairs of a step or a route."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, Mapping):
        yield from _texts(tuple(value.values()))
    elif isinstance(value, Struct):
        yield from _texts(astuple(value))
