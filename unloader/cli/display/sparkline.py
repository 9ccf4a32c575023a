"""A few figures as one line of characters, and some points as a plot of several lines.

Both are plain text, for a pipe, a log or a screen that is redrawn. rich has no plots. plotext keeps
one picture for the whole process and colours it with its own escape sequences, which rich could not
measure. So this page is our code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from unloader.cli.display import render

_FEWEST_MARKS = 8
"""With less room than these need a line is cut or broken."""

_BLOCKS = "▁▂▃▄▅▆▇█"
_PLAIN = "_.-:=+*#"
"""Where the terminal's encoding has no blocks."""

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character by line and column (Unicode, Braille Patterns)."""
_BRAILLE = 0x2800


def can_show_blocks(stream: TextIO) -> bool:
    """Return whether a stream takes blocks and braille."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    return encoding.lower().replace("-", "").startswith("utf")


def sparkline(values: Sequence[float], *, unicode: bool, most: float | None = None) -> str:
    """Return a character for each value, from 0 up to the largest.

    Args:
        values: None of them negative.
        unicode: Whether blocks can be shown.
        most: The value of the highest character; None is the largest value.
    """
    marks = _BLOCKS if unicode else _PLAIN
    top = max(values, default=0.0) if most is None else most
    if top <= 0:
        return marks[0] * len(values)
    return "".join(marks[min(7, int(value / top * 7.999))] for value in values)


def means(values: Sequence[float], most: int) -> list[float]:
    """Return at most this number of means of neighbours, in the same order.

    Args:
        values: All.
        most: At least 1.
    """
    together = -(-len(values) // most) if values else 1
    groups = (values[at : at + together] for at in range(0, len(values), together))
    return [sum(group) / len(group) for group in groups]


def speeds_text(speeds: Sequence[float], width: int | None, *, unicode: bool) -> str:
    """Return the course of a speed as one line, with its highest mean in figures.

    Args:
        speeds: Rows per second, over equal times; at least one.
        width: Columns that there are; None is as many as it needs.
        unicode: Whether blocks can be shown.
    """
    told = f" up to {render.rows_per_second(max(speeds))}"
    room = len(speeds) if width is None else width - len(told)
    return sparkline(means(speeds, max(room, _FEWEST_MARKS)), unicode=unicode) + told


def plot(
    points: Iterable[tuple[float, float]], *, width: int, height: int, unicode: bool
) -> list[str]:
    """Return points as lines of text; both axes begin at 0 and end at the largest point.

    Args:
        points: Across and up.
        width: Characters of a line.
        height: Lines.
        unicode: Whether braille can be shown; a character has two by four dots of it.
    """
    known = [(x, y) for x, y in points if x >= 0 and y >= 0]
    right, top = max((x for x, _ in known), default=0.0), max((y for _, y in known), default=0.0)
    across, up = (2, 4) if unicode else (1, 1)
    cells = [[0] * width for _ in range(height)]
    for x, y in known:
        column = _place(x, right, width * across)
        line = height * up - 1 - _place(y, top, height * up)
        bit = _DOTS[line % 4][column % 2] if unicode else 1
        cells[line // up][column // across] |= bit
    return ["".join(_mark(cell, unicode) for cell in line) for line in cells]


def _place(value: float, most: float, places: int) -> int:
    return min(places - 1, int(value / most * (places - 1) + 0.5)) if most > 0 else 0


def _mark(cell: int, unicode: bool) -> str:
    if not cell:
        return " "
    return chr(_BRAILLE + cell) if unicode else "*"
