"""Tables that fit a terminal: numbers as ranges, and one column that is folded to the width."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from unloader.cli.display import render

NARROWEST, WIDEST = 80, 160

_LEAST_STRIDES = 4
"""As many numbers with gaps of one size between them are written as a stride."""

_LEAST_FOLDED = 14

_WORD = re.compile(r"[^, ]*(?:, *| +|$)")
_STRIDE = re.compile(r"\b(\d+)-(\d+):(\d+)\b")


def terminal_width() -> int:
    """Return the columns to draw in: those of the terminal, or COLUMNS; 80 where nobody says."""
    return max(NARROWEST, min(shutil.get_terminal_size((80, 24)).columns, WIDEST))


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as `0-3,8`, and evenly spaced ones as `0-62:2`, as taskset takes both."""
    rest = sorted(set(numbers))
    parts: list[str] = []
    at = 0
    while at < len(rest):
        step, length = _run(rest, at)
        first, last = rest[at], rest[at + length - 1]
        parts.append(str(first) if length == 1 else f"{first}-{last}")
        if step > 1 and length > 1:
            parts[-1] += f":{step}"
        at += length
    return ",".join(parts)


def legend(text: str) -> str:
    """Return what the first stride in a text means, on a line of its own; empty if there is none.

    Few readers know the notation, and only where it saves much is it used.
    """
    match = _STRIDE.search(text)
    if match is None:
        return ""
    first, last, step = (int(number) for number in match.groups())
    return f"{match[0]} means {first},{first + step},{first + 2 * step} and so on to {last}"


def _run(numbers: Sequence[int], start: int) -> tuple[int, int]:
    """Return the step of the run that begins there, and how many numbers are in it."""
    if start + 1 == len(numbers):
        return 1, 1
    step = numbers[start + 1] - numbers[start]
    end = start + 1
    while end + 1 < len(numbers) and numbers[end + 1] - numbers[end] == step:
        end += 1
    length = end - start + 1
    return (step, length) if step == 1 or length >= _LEAST_STRIDES else (1, 1)


def folded_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, fold: frozenset[str], width: int
) -> str:
    """Return rows in aligned columns no wider than the width.

    Args:
        heads: As `render.table` takes them.
        rows: The cells.
        fold: Heads of the columns whose cells may go on in further lines.
        width: Columns of the terminal.
    """
    known = [tuple(row) for row in rows]
    named = (tuple(head.lstrip(">") for head in heads), *known)
    natural = [max(len(row[at]) for row in named) for at in range(len(heads))]
    folds = [at for at, head in enumerate(heads) if head in fold]
    rooms = _rooms({at: natural[at] for at in folds}, width - sum(natural) - 2 * len(heads) + 2)
    lines: list[Sequence[str]] = []
    for row in known:
        cells = [folded(cell, rooms.get(at, natural[at])) for at, cell in enumerate(row)]
        lines += zip_longest(*cells, fillvalue="")
    return render.table(heads, lines)


def _rooms(natural: dict[int, int], spare: int) -> dict[int, int]:
    """Return the width of each column that may be folded; `spare` is negative if they must be.

    The widest give way first, so that a short one is not broken for a long one's sake.
    """
    rooms = dict(natural)
    while spare < 0 and rooms:
        widest = max(rooms, key=lambda at: rooms[at])
        if rooms[widest] <= _LEAST_FOLDED:
            break
        rooms[widest] -= 1
        spare += 1
    return rooms


def folded(text: str, width: int) -> list[str]:
    """Return a text as lines no wider than that, broken after commas and blanks where it can be."""
    lines = [""]
    for word in _WORD.findall(text):
        if lines[-1] and len(lines[-1]) + len(word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
    return [line.rstrip() for line in lines]


def facts(pairs: Iterable[tuple[str, str]], width: int) -> str:
    """Return names and values, one pair a line or as many lines as the value needs."""
    known = list(pairs)
    indent = max(len(name) for name, _ in known) + 2
    return "\n".join(
        f"{name if number == 0 else '':<{indent}}{line}"
        for name, value in known
        for number, line in enumerate(folded(value, width - indent))
    )
