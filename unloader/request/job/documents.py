"""The text of a job file and of the files that it includes: TOML, lines of keys, and variables."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from unloader.errors import ConfigError, UnloaderError, UsageError
from unloader.redaction import holds_secret, is_secret, learn
from unloader.request.job.entries import Mistake, Place
from unloader.request.settings import at_home
from writers.files.regular import read_regular


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a job file, and its content.

    Raises:
        ConfigError: It cannot be read or is not TOML.
    """
    try:
        # Editors of Windows begin the file with a mark of the byte order.
        text = read_regular(path, follow=True).decode().removeprefix("\ufeff")
        return text, tomllib.loads(text)
    except OSError as error:
        raise ConfigError(
            f"the job file {path} cannot be read: {error.strerror}", "check the path"
        ) from error
    except UnicodeDecodeError:
        raise ConfigError(f"the job file {path} is not UTF-8 text", "save it as UTF-8") from None
    except RecursionError as error:
        raise ConfigError(
            f"the job file {path} is not TOML: it is nested too deeply", "correct the file"
        ) from error
    except ValueError as error:
        # The parser may repeat a key or a character, maybe a secret: only the place is shown.
        place = re.search(r"at (line \d+, column \d+|end of document)", str(error))
        where = f" at {place[1].replace('end of document', 'its end')}" if place else ""
        raise ConfigError(
            f"the job file {path} is not TOML{where}",
            "correct it: KEY = VALUE on each line, texts in double quotes, each key once",
        ) from None


KeyPath = tuple[str | int, ...]
"""Keys from the top down; a list of tables is followed by the number of a table, from 0."""

_WORD = re.compile(
    r"""
    \"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5}      # texts of several lines
    | "(?:\\.|[^"\\\n])*" | '[^'\n]*'                # texts of one line
    | \#[^\n]* | \n | [\[\]{}=.] | [^\s\[\]{}=.\#"']+ | [^\S\n]+
    """,
    re.DOTALL | re.VERBOSE,
)


def lines_of(text: str) -> dict[KeyPath, int]:
    """Return the line of each table and each key of a TOML text, counted from 1."""
    found: dict[KeyPath, int] = {}
    numbers: dict[KeyPath, int] = {}
    table: KeyPath = ()
    words: list[str] = []
    line = begun = 1
    depth: int | None = None  # Of brackets in a value; None before the equals sign.
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
            found.setdefault((*table, *_within(words, table, numbers)), begun)
            depth = 0
        elif not word.isspace() and not word.startswith("#"):
            begun = begun if words else line
            words.append(word)
        line += word.count("\n")
    return found


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int | None:
    """Return the line of a key, or of the innermost table around it whose line is known."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


def _table(words: list[str], numbers: dict[KeyPath, int]) -> KeyPath:
    """Return the path of a header; one in double brackets is the next of its list."""
    is_list = words[:2] == ["[", "["]
    path = _within([word for word in words if word not in ("[", "]")], (), numbers)
    if not is_list:
        return path
    if isinstance(path[-1], int):
        path = path[:-1]
    numbers[path] = numbers.get(path, -1) + 1
    return (*path, numbers[path])


def _within(words: list[str], table: KeyPath, numbers: Mapping[KeyPath, int]) -> KeyPath:
    """Return keys below a table with the numbers of the lists of tables that they lead through."""
    found = table
    for word in words:
        if word == ".":
            continue
        key = tomllib.loads(f"key = {word}")["key"] if word[0] in "\"'" else word
        found = (*found, str(key))
        if found in numbers:
            found = (*found, numbers[found])
    return found[len(table) :]


SHOWN = "shown-variables"
"""The key of the names of variables that may be shown."""

FORM = re.compile(r"\$(?P<literal>\$\{)|\$\{(?P<inside>[^{}]*)(?P<end>\})?")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_INSIDE = re.compile(rf"(?P<name>{_NAME})(?::-(?P<default>.*))?", re.DOTALL)


def shown_variables(content: Mapping[str, Any]) -> frozenset[str]:
    """Return the names that one file declares.

    Raises:
        ValueError: They are not names of variables; the message is fit for the user.
    """
    names: list[Any] = []
    for key, value in content.items():
        if key.replace("_", "-").lower() == SHOWN:
            names.extend(value if isinstance(value, list) else [value])
    if not all(isinstance(each, str) and re.fullmatch(_NAME, each) for each in names):
        raise ValueError('it is not a list of names of variables; write shown-variables = ["NAME"]')
    return frozenset(names)


def expanded(
    value: Any, shown: Collection[str] | None, environ: Mapping[str, str] = os.environ
) -> Any:
    """Return a value with the variables in its texts replaced; keys of tables stay as they are.

    `$${` is `${` itself. An empty variable counts as one that is not set, as everywhere.

    Args:
        value: As TOML has it.
        shown: The variables that may be shown; None where the text is never shown. Then any
            variable may be used, and its content is hidden from now on.
        environ: The variables.

    Raises:
        ValueError: A variable may not be used, is not set and has no default, or is not written
            as one; the message is fit for the user.
    """
    if isinstance(value, str):
        return FORM.sub(lambda form: _replaced(form, shown, environ), value)
    if isinstance(value, list):
        return [expanded(each, shown, environ) for each in value]
    if isinstance(value, dict):
        return {key: expanded(each, shown, environ) for key, each in value.items()}
    return value


def _replaced(
    form: re.Match[str], shown: Collection[str] | None, environ: Mapping[str, str]
) -> str:
    if form["literal"]:
        return "${"
    inside = _INSIDE.fullmatch(form["inside"])
    if not form["end"] or inside is None:
        # The text is not shown: it may be a secret.
        raise ValueError(
            "a ${ does not begin a variable; write ${NAME}, ${NAME:-default}, or $${ for ${ itself"
        )
    name, text = inside["name"], environ.get(inside["name"], "")
    if shown is None:
        learn(text)
    elif is_secret(name) or holds_secret(text):
        raise ValueError(
            f"the variable {name} holds a secret, and values of a job file are shown and recorded; "
            "use password-file or another place of passwords"
        )
    elif name not in shown:
        raise ValueError(
            f"the variable {name} may hold a secret, and values of a job file are shown and "
            f'recorded; if others may see it, write shown-variables = ["{name}"] at the top of the '
            "file, or add the name to that list"
        )
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise ValueError(f"the variable {name} holds bytes that are not text")
    if text:
        return text
    if inside["default"] is None:
        raise ValueError(f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
    return inside["default"]


INCLUDE = "include"

Report = Callable[[Mistake], None]
"""Takes one mistake; may raise it, which ends the reading."""


class Document(Struct, frozen=True, kw_only=True):
    path: str
    content: dict[str, Any]
    lines: dict[KeyPath, int]
    counts_entries: bool
    """False where the same file is included a second time: its keys count again, being the later
    ones, and its tables are there already."""
    shown: frozenset[str]
    """The variables that this file, or one that includes it, declares as fit to be shown."""

    def place(self, *path: str | int) -> Place:
        return Place(path=self.path, line=line_of(self.lines, path))


def documents(path: Path, report: Report) -> tuple[Document, ...]:
    """Return a job file and all that it includes; later ones override those before.

    Raises:
        ConfigError: The file itself cannot be read or is not TOML.
    """
    seen: set[str] = set()

    def wrong(place: Place, error: UnloaderError, key: str = INCLUDE) -> None:
        report(Mistake(error=error, place=place, key=key))

    def read(path: str, around: tuple[str, ...], shown: frozenset[str]) -> Iterator[Document]:
        text, content = read_toml(Path(path))
        real, lines = os.path.realpath(path), lines_of(text)
        try:
            shown |= shown_variables(content)
        except ValueError as error:
            why, _, hint = str(error).partition("; ")
            place = Place(path=path, line=line_of(lines, (SHOWN,)))
            wrong(place, UsageError(f"{place}: {SHOWN}: {why}", hint), SHOWN)
        document = Document(
            path=path, content=content, lines=lines, counts_entries=real not in seen, shown=shown
        )
        seen.add(real)
        around = (*around, path)
        for written in (each for each in content if each.lower() == INCLUDE):
            place = document.place(written)
            for inner in included(document, written, place):
                circle = [os.path.realpath(each) for each in around]
                if (again := os.path.realpath(inner)) in circle:
                    way = ", which includes ".join((*around[circle.index(again) + 1 :], inner))
                    text = f"{around[circle.index(again)]} includes {way}"
                    wrong(
                        place,
                        UsageError(
                            f"{place}: files include each other in a circle: {text}",
                            "remove one of these includes",
                        ),
                    )
                    continue
                try:
                    yield from read(inner, around, shown)
                except ConfigError as error:
                    # The file cannot be read. A mistake inside it has its own place.
                    message = f"{place}: {INCLUDE}: {error.message}"
                    wrong(place, ConfigError(message, error.hint))
        yield document

    def included(document: Document, written: str, place: Place) -> list[str]:
        """Return the paths that a file includes, from where this process is."""
        value = document.content[written]
        items = value if isinstance(value, list) else [value]
        try:
            if not all(isinstance(each, str) and each.strip() for each in items):
                raise ValueError("it is neither a path in quotes nor a list of such paths")
            paths = [at_home(str(expanded(each, document.shown))) for each in items]
            return [os.path.join(os.path.dirname(document.path), each) for each in paths]
        except ValueError as error:
            why, _, hint = str(error).partition("; ")
        # Out of the block, so that no traceback shows more than the message.
        hint = hint or f'write {INCLUDE} = ["base.toml"]'
        wrong(place, UsageError(f"{place}: {INCLUDE}: {why}", hint))
        return []

    return tuple(read(str(path), (), frozenset()))
