"""Values of a document that another program wrote: what is of another type is nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_map(value: object) -> Mapping[str, Any]:
    """Return a map, empty if it is none."""
    return value if isinstance(value, Mapping) else {}


def as_maps(value: object) -> list[Mapping[str, Any]]:
    """Return the maps of a list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def as_number(value: object) -> float | None:
    """Return a number, None if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value


def as_text(value: object) -> str:
    """Return a text, empty for nothing."""
    return "" if value is None else str(value)


def digits(value: float | None) -> float | None:
    """Return a number with six digits of it."""
    return None if value is None else float(f"{value:.6g}")
