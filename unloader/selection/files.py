"""A file of tables: a pattern a line, with comments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from unloader.errors import UsageError
from unloader.selection.patterns import TablePattern, parse_pattern
from writers.files.regular import read_named


def read_patterns(path: Path) -> tuple[TablePattern, ...]:
    """Return the patterns of a file, in its order.

    Raises:
        UsageError: The file cannot be read, is not UTF-8, has a line that is no pattern, or none
            at all.
    """
    try:
        # Line ends as they are: a name in quotes may hold one.
        text = read_named(path).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"cannot read the list of tables {path}: {error.strerror or error}",
            "give a file with one table name on each line",
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the list of tables {path} is not UTF-8 text: byte {error.start}, {error.reason}",
            "save the file as UTF-8",
        ) from error
    found = patterns_of(text, str(path))
    if not found:
        raise UsageError(
            f"the list of tables {path} is empty", "write a table or a pattern on each line"
        )
    return found


def patterns_of(text: str, where: str) -> tuple[TablePattern, ...]:
    """Return the patterns of a text, one a line.

    Blank lines and lines that begin with `#` are left out; a name that begins with it is quoted. A
    line end within double quotes belongs to the name.

    Args:
        text: The lines.
        where: What they are called in messages, before the number of a line.

    Raises:
        UsageError: A line is no pattern, or has a quote that is never closed.
    """
    return tuple(
        parse_pattern(line, f"{where}, line {number}") for number, line in _lines(text, where)
    )


def _lines(text: str, where: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that says something."""
    pending: list[str] = []
    begun, is_open = 0, False
    for number, line in enumerate(text.split("\n"), 1):
        if not pending:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            begun = number
        pending.append(line)
        is_open ^= line.count('"') % 2 == 1
        if not is_open:
            yield begun, "\n".join(pending).strip()
            pending = []
    if pending:
        raise UsageError(
            f"{where}, line {begun}, has a double quote without a closing quote",
            "close it; write a double quote inside a name twice",
        )
