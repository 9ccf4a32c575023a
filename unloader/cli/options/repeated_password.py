"""The source's password, typed where it does not belong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from unloader.errors import UsageError
from unloader.redaction import holds_secret


def refuse_repeated(location: str, values: Mapping[str, Any]) -> None:
    """Refuse what holds the source's password itself: it would go into the manifest and the plan.

    Hiding it there would not do: a condition with `***` in it means other rows.

    Args:
        location: Of the source.
        values: Every option by its name with underscores.

    Raises:
        UsageError: One holds it.
    """
    for name, value in (("the source URL", location), *values.items()):
        if any(map(holds_secret, _texts(value))):
            what = name if name == "the source URL" else "--" + name.replace("_", "-")
            raise UsageError(
                f"{what} holds the password of the source, which every user of this machine "
                "can read in the list of processes",
                "take it out; if it is there by chance, give the database's user another password",
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
    elif is_dataclass(value):
        yield from _texts(tuple(getattr(value, each.name) for each in fields(value)))
