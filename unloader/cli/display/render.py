"""Results on stdout: plain tables that survive a pipe or fit a terminal, and JSON."""

from __future__ import annotations

import json
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from msgspec import to_builtins

from unloader import nouns
from unloader.cli import streams
from unloader.cli.streams import give_up, was_closed
from unloader.errors import AnswerLost
from unloader.nouns import counted
from unloader.request.name_templates import DIRECTIONS

UNKNOWN = "-"

LONGEST = 2000
"""Characters of a message. A statement or a list of columns in it may be far longer."""

_SEND_ELSEWHERE = "send it to a file or a program that takes it: > FILE, | PROGRAM"

_NUMBERS = re.compile(r"\[\n\s*(-?\d[^\s,]*(?:,\n\s*-?\d[^\s,]*)*)\n\s*\]")

_INVISIBLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)
"""Controls, ends of line, and what changes the direction of text or has no width."""
_COMMANDS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{DIRECTIONS}]")
"""Characters that a terminal obeys, except tabs and ends of line."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_IN_SQL = re.compile(r"""("(?:[^"]|"")*"|'(?:[^']|'')*')|\s+""")


_LEAST_FOLDED = 14
_LEAST_STRIDES = 4
"""As many numbers with gaps of one size between them are written as a stride."""
_WORD = re.compile(r"[^, ]*(?:, *| +|$)")


def answer(
    values: Mapping[str, Any],
    document: object,
    text: str | Callable[[], str],
    *,
    done: str = "",
    asked: bool = True,
) -> None:
    """Write the result of a command as `--json`, `--quiet` or neither of them demands.

    `document` is the result for programs, and `text` the one for people, or returns it. The rest
    is as for `emit`.
    """
    if values["json"]:
        emit(json_text(document), done=done)
    elif not values["quiet"]:
        emit(text if isinstance(text, str) else text(), done=done, asked=asked)


def emit(text: str, *, done: str = "", asked: bool = True) -> None:
    """Write one result to stdout.

    `done` is the work that is done even if this cannot be written, such as a run and its place.
    If all is `asked` that the caller wanted, a stdout that was closed from the start is an error.

    Raises:
        BrokenPipeError: The reader of stdout has gone.
        AnswerLost: It cannot be written otherwise, such as to a full disk.
    """
    if asked and was_closed(1):
        raise AnswerLost(
            "the result cannot be written, because standard output is closed", _SEND_ELSEWHERE
        )
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up(sys.stdout)
        raise lost_answer(error, done) from error


def lost_answer(error: OSError, done: str = "") -> AnswerLost:
    """Return the error for a result that stdout did not take."""
    lost = f"the result cannot be written to standard output: {error.strerror}"
    if done:
        return AnswerLost(f"{done}, but {lost}", "read its _manifest.json; do not run it again")
    return AnswerLost(lost, _SEND_ELSEWHERE)


def print_aside(text: str) -> None:
    """Write one result to stderr, because stdout holds the data; its loss is not an error."""
    with suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def notices(texts: Iterable[str]) -> None:
    """Write notices to stderr, one a line."""
    for text in texts:
        streams.notice(visible(text))


def json_text(value: object) -> str:
    """Return a value as indented JSON with a line for each list of numbers, not for each number.

    A machine of many nodes has a million distances, and a seat may have a hundred CPUs.
    """
    text = json.dumps(to_builtins(value, enc_hook=str), indent=2)
    # No string in it holds a line end, so that lists alone are found.
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)


def name(text: str) -> str:
    r"""Return a name of the database so that two names never look the same.

    What cannot be seen is written as `\n`, `\t`, `\x1b` or `\u202e`, and a backslash as two.
    """
    return visible(text.replace("\\", r"\\"))


def visible(text: str) -> str:
    """Return a text whose control characters, ends of line included, are written out."""
    return _INVISIBLE.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    char, code = found[0], ord(found[0])
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def statement(sql: str) -> str:
    """Return a statement on one line; quoted text keeps its blanks, written out."""
    return visible(_IN_SQL.sub(lambda found: found[1] or " ", sql).strip())


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows in aligned columns; a head that begins with `>` is set to the right.

    A cell may be a text, a whole number, yes or no as a bool, or None if it is unknown.
    """
    lines = [[head.lstrip(">") for head in heads], *[[*map(_cell, row)] for row in rows]]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    shown = []
    for line in lines:
        cells = []
        for cell, head, width in zip(line, heads, widths, strict=True):
            gap = " " * (width - _width(cell))
            cells.append(gap + cell if head.startswith(">") else cell + gap)
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown)


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Return names and values, one pair a line, without the unknown ones, whose value is None."""
    known = [(name, _cell(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in known)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else visible(str(value))


def left_out(filtered: int | None) -> tuple[str, str | None]:
    """Return the fact on rows that a filter left out; its value is None without a filter."""
    return "left out", None if filtered is None else f"{counted(filtered, 'row')}, by the filter"


def count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def size(value: float | None) -> str:
    return UNKNOWN if value is None else nouns.size(value)


def exact_size(value: int) -> str:
    """Return bytes as they are, then in the unit that fits."""
    return f"{value:,} ({nouns.size(value)})"


def about(text: str, what: str) -> str:
    """Return a figure with its description, or just that it is unknown."""
    return text if text == UNKNOWN else f"{text} ({what})"


def megabytes_per_second(rate: float | None) -> str:
    return f"{UNKNOWN} MB/s" if rate is None else nouns.bytes_per_second(rate)


def megabytes(rate: float | None, digits: int = 1) -> str:
    """Return the number of a rate in MB/s, for a column whose head has the unit."""
    return UNKNOWN if rate is None else f"{rate / 1e6:,.{digits}f}"


rows_per_second = nouns.rows_per_second


def seconds(value: float) -> str:
    """Return a duration as people say it."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def one_line(text: str) -> str:
    r"""Return a text as one line that no terminal obeys: control characters become `\xHH`.

    Names in a database may hold anything, escape sequences of terminals included.
    """
    return lines(re.sub(r"\s*[\r\n]\s*", " ", text))


def lines(text: str) -> str:
    """Return a text of several lines, such as a traceback, that no terminal obeys."""
    return _COMMANDS.sub(_written_out, text)


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return a text without its middle if it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} ... ({len(text) - 2 * half:,} characters) ... {text[-half:]}"


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def terminal_width() -> int:
    """Return the columns to draw in: of the terminal or COLUMNS, from 80 to 160."""
    return max(80, min(shutil.get_terminal_size((80, 24)).columns, 160))


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as `0-3,8`, and evenly spaced ones as `0-62:2`, as taskset takes both."""
    rest = sorted(set(numbers))
    parts: list[str] = []
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        run = next(
            at for at in range(1, len(rest) + 1) if rest[at : at + 1] != [rest[0] + at * step]
        )
        if step > 1 and run < _LEAST_STRIDES:
            run = 1
        stride = f":{step}" if step > 1 else ""
        parts.append(f"{rest[0]}-{rest[run - 1]}{stride}" if run > 1 else str(rest[0]))
        rest = rest[run:]
    return ",".join(parts)


def folded_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, fold: frozenset[str], width: int
) -> str:
    """Return rows in aligned columns, as `table`, no wider than the width.

    Cells of the columns with the heads in `fold` may go on in further lines.
    """
    known = [tuple(row) for row in rows]
    named = (tuple(head.lstrip(">") for head in heads), *known)
    rooms = [max(len(row[at]) for row in named) for at in range(len(heads))]
    folds = [at for at, head in enumerate(heads) if head in fold]
    # The widest give way first, so that a short one is not broken for a long one's sake.
    while folds and sum(rooms) + 2 * len(heads) - 2 > width:
        widest = max(folds, key=lambda at: rooms[at])
        if rooms[widest] <= _LEAST_FOLDED:
            break
        rooms[widest] -= 1
    lines: list[Sequence[str]] = []
    for row in known:
        cells = [folded(cell, room) for cell, room in zip(row, rooms, strict=True)]
        lines += zip_longest(*cells, fillvalue="")
    return table(heads, lines)


def folded(text: str, width: int) -> list[str]:
    """Return a text as lines no wider than that, broken after commas and blanks where it can be."""
    lines = [""]
    for word in _WORD.findall(text):
        if lines[-1] and len(lines[-1]) + len(word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
    return [line.rstrip() for line in lines]


def folded_facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Return names and values, one pair a line or as many lines as the value needs."""
    indent = max(len(name) for name, _ in pairs) + 2
    width = terminal_width() - indent
    lines = (f"\n{'':{indent}}".join(folded(value, width)) for _, value in pairs)
    return "\n".join(f"{name:{indent}}{line}" for (name, _), line in zip(pairs, lines, strict=True))
