"""Reads JSON that anybody may have written: what cannot be decoded is a `ValueError`, always."""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 100
"""Plans and manifests are ten levels deep. What is much deeper could be read and not written."""


def decode(text: str) -> Any:
    """Return the decoded text.

    Raises:
        ValueError: It is not JSON, or nested deeper than `MAX_DEPTH`.
    """
    too_deep = f"it is nested more than {MAX_DEPTH} levels deep"
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError(too_deep) from None
    level = [document]
    for _ in range(MAX_DEPTH):
        level = [each for value in level for each in _inside(value)]
        if not level:
            return document
    raise ValueError(too_deep)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return value if isinstance(value, list) else []
