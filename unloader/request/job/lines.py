"""In which line of a TOML text each key stands; the parser does not tell.

The text is known to be TOML, so that only its words must be told apart, not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from unloader.request.job.parsing import loads

Path = tuple[str | int, ...]
"""Keys from the top down; behind that of a list of tables the number of one, from 0."""

_WORD = re.compile(
    r"""
    \"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5}      # texts of several lines
    | "(?:\\.|[^"\\\n])*" | '[^'\n]*'                # texts of one line
    | \#[^\n]* | \n | [\[\]{}=.] | [^\s\[\]{}=.\#"']+ | [^\S\n]+
    """,
    re.DOTALL | re.VERBOSE,
)


def lines_of(text: str) -> dict[Path, int]:
    """Return the line of each table and each key of a TOML text, counted from 1."""
    found: dict[Path, int] = {}
    numbers: dict[Path, int] = {}
    table: Path = ()
    words: list[str] = []
    line = begun = 1
    depth: int | None = None  # Of brackets in a value; None in front of its equals sign.
    for word in _WORD.findall(f"{text}\n"):
        if word == "\n" and not depth:
            if words and depth is None:
                table = _table(words, numbers)
                for length in range(1, len(table) + 1):
                    found.setdefault(table[:length], begun)
            words, depth = [], None
        elif depth is not None:
            depth += (word in "[{") - (word in "]}") if len(word) == 1 else 0
        elif word == "=" and words[0] != "[":
            found.setdefault((*table, *_within(_keys(words), table, numbers)), begun)
            depth = 0
        elif not word.isspace() and not word.startswith("#"):
            begun = begun if words else line
            words.append(word)
        line += word.count("\n")
    return found


def line_of(lines: Mapping[Path, int], path: Path) -> int | None:
    """Return the line of a key, or of the innermost table around it whose line is known."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


def _table(words: list[str], numbers: dict[Path, int]) -> Path:
    """Return the path of a header; one in double brackets is the next of its list."""
    is_list = words[:2] == ["[", "["]
    path = _within(_keys(word for word in words if word not in ("[", "]")), (), numbers)
    if not is_list:
        return path
    if isinstance(path[-1], int):
        path = path[:-1]
    numbers[path] = numbers.get(path, -1) + 1
    return (*path, numbers[path])


def _within(keys: Path, table: Path, numbers: Mapping[Path, int]) -> Path:
    """Return keys below a table with the numbers of the lists of tables that they lead through."""
    found = table
    for key in keys:
        found = (*found, key)
        if found in numbers:
            found = (*found, numbers[found])
    return found[len(table) :]


def _keys(words: Iterable[str]) -> Path:
    return tuple(_key(word) for word in words if word != ".")


def _key(word: str) -> str:
    if word[0] not in "\"'":
        return word
    return str(loads(f"key = {word}")["key"])
