"""From options to the fields of a request that they name, and from a request back to its record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from unloader.request.options.option import Option


def field_values(options: Iterable[Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that options set, by their dotted paths.

    An option that is None leaves its field's default; one that the format does not know is passed
    over, since a variable may set it for all jobs of a machine.

    Args:
        options: The list of options.
        values: Their values by their keys; an option that a command does not take is missing.
    """
    found: dict[str, Any] = {}
    for option in options:
        value = values.get(option.key)
        if option.field and value is not None and option.knows(values.get("format", "")):
            found[option.field] = option.shape(value) if option.shape else value
    return found


def build(
    owner: type[Any], fields: Mapping[str, Any], options: Iterable[Option], at: str = ""
) -> Any:
    """Return a dataclass made of the values of its fields; the others keep their defaults.

    Args:
        owner: The dataclass.
        fields: Values by dotted paths. One that has fields below it, such as the format that a
            dialect names, is what those are put into; if it is None they are passed over.
        options: The list of options, which knows the dataclass of each part.
        at: Path of the dataclass itself in a request, with a dot behind it; empty is the request.
    """
    parts = {o.field.rpartition(".")[0]: o.owner for o in options if o.owner is not None}
    return owner(**_own(fields, parts, at))


def recorded(options: Iterable[Option], request: Any) -> dict[str, Any]:
    """Return the values that a manifest keeps of a request, by their keys there."""
    found = {each.record: value_at(request, each.field) for each in options if each.record}
    return {key: list(v) if isinstance(v, tuple) else v for key, v in found.items()}


def value_at(request: Any, path: str) -> Any:
    """Return a field by its dotted path; None where what has the field is None."""
    for name in path.split("."):
        request = None if request is None else getattr(request, name)
    return request


def _own(
    fields: Mapping[str, Any], parts: Mapping[str, type[Any] | None], at: str
) -> dict[str, Any]:
    """Return the values of the fields that stand at the top, made of those below them."""
    own = {path: value for path, value in fields.items() if "." not in path}
    for name in dict.fromkeys(path.partition(".")[0] for path in fields if "." in path):
        prefix = f"{name}."
        below = {
            path.removeprefix(prefix): value
            for path, value in fields.items()
            if path.startswith(prefix)
        }
        inner = _own(below, parts, f"{at}{prefix}")
        if name not in own:
            part = parts[f"{at}{name}"]
            assert part is not None
            own[name] = part(**inner)
        elif own[name] is not None:
            own[name] = replace(own[name], **inner)
    return own
