"""Levels of parallelism as people write them: single ones and ranges with a step."""

from __future__ import annotations

import re

MOST_LEVELS = 1000
LARGEST_LEVEL = 65_535

_RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})(?::([+-]?[0-9]{1,9}))?", re.ASCII)
_HOW = "write numbers and ranges with a step, such as 1,2,4 or 32..4:-4,3,2"


def parse_levels(text: str) -> tuple[int, ...]:
    """Return the levels of `32..4:-4,3,2` in the order written, each once.

    A range has both its ends if the step leads there. Without a step it counts by one, down where
    the first end is the larger one.

    Raises:
        ValueError: An item is no level or range, or a step leads away from the end of its range.
    """
    found: dict[int, None] = {}
    for item in text.split(","):
        for level in _levels(item.strip()):
            if not 1 <= level <= LARGEST_LEVEL:
                raise ValueError(f"{level} is not a number of workers from 1 to {LARGEST_LEVEL}")
            found[level] = None
            if len(found) > MOST_LEVELS:
                raise ValueError(f"there are more than {MOST_LEVELS} levels")
    return tuple(found)


def levels_text(levels: tuple[int, ...]) -> str:
    """Return levels as `parse_levels` reads them."""
    return ",".join(map(str, levels))


def _levels(item: str) -> range:
    if item.isascii() and item.isdigit() and len(item) < 10:
        return range(int(item), int(item) + 1)
    match = _RANGE.fullmatch(item)
    if match is None:
        what = f"{item!r} is not a level" if item else "a level is empty"
        raise ValueError(f"{what}; {_HOW}")
    first, last = int(match[1]), int(match[2])
    direction = -1 if last < first else 1
    step = direction if match[3] is None else int(match[3])
    if step * direction <= 0:
        right = f"{first}..{last}:{direction * (abs(step) or 1):+d}"
        raise ValueError(f"the step of {item} does not lead from {first} to {last}; write {right}")
    return range(first, last + direction, step)
