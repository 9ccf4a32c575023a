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
from unloader.request.settings import at_home
from writers.files.regular import read_regular

INCLUDE, SHOWN = "include", "shown-variables"
"""Keys of the included files, and of the names of variables that may be shown."""


class Place(Struct, frozen=True, kw_only=True):
    """A place in a job file."""

    path: str
    line: int | None = None
    """Counted from 1; None where it is not known."""

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}, line {self.line}"


class Mistake(Struct, frozen=True, kw_only=True):
    """An error at one place of a job file."""

    error: UnloaderError
    """Its message names place, entry and key."""
    place: Place
    key: str = ""
    """With hyphens; empty where it is about no key, or the key may be a secret."""
    entry: str = ""


Report = Callable[[Mistake], None]
"""Takes one mistake; may raise it, which ends the reading."""


def mistake(
    place: Place,
    text: str,
    hint: str,
    *,
    key: str = "",
    entry: str = "",
    kind: type[UnloaderError] = UsageError,
) -> Mistake:
    where = f"{place}: {entry}" if entry else str(place)
    return Mistake(error=kind(f"{where}: {text}", hint), place=place, key=key, entry=entry)


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

_LONG_TEXT = re.compile(r"\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}", re.DOTALL)
_WORD = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[\w-]+)"""
_LINE = re.compile(rf"\s*(\[*)\s*({_WORD}(?:\s*\.\s*{_WORD})*)\s*([\]=])")


def lines_of(text: str) -> dict[KeyPath, int]:
    """Return the line of each table and of each key at the start of a line, counted from 1."""
    found: dict[KeyPath, int] = {}
    numbers: dict[KeyPath, int] = {}
    table: KeyPath = ()
    # A text of several lines may have lines that look like keys.
    plain = _LONG_TEXT.sub(lambda long: '""' + "\n" * long[0].count("\n"), text)
    for number, line in enumerate(plain.splitlines(), 1):
        match = _LINE.match(line)
        if match is None:
            continue
        brackets, words, end = match.groups()
        path: KeyPath = () if brackets else table
        for word in re.findall(_WORD, words):
            key = tomllib.loads(f"key = {word}")["key"] if word[0] in "\"'" else word
            path = (*path, key)
            path = (*path, numbers[path]) if path in numbers else path
        if brackets == "[[":
            path = path[:-1] if isinstance(path[-1], int) else path
            numbers[path] = numbers.get(path, -1) + 1
            path = (*path, numbers[path])
        if end == "]":
            table = path
        for length in range(1, len(path) + 1):
            found.setdefault(path[:length], number)
    return found


FORM = re.compile(r"\$(?P<literal>\$\{)|\$\{(?P<inside>[^{}]*)(?P<end>\})?")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_INSIDE = re.compile(rf"(?P<name>{_NAME})(?::-(?P<default>.*))?", re.DOTALL)


def expanded(
    value: Any, shown: Collection[str] | None, environ: Mapping[str, str] = os.environ
) -> Any:
    """Return a value with the variables in its texts replaced; keys of tables stay as they are.

    `$${` is `${` itself. An empty variable counts as one that is not set, as everywhere. Only the
    variables in `shown` may be used. With None, the text is never shown: any variable may be
    used, and its content is hidden from now on.

    Raises:
        ValueError: A variable may not be used, is not set and has no default, or is not written
            as one; the message is fit for the user.
    """
    if isinstance(value, list):
        return [expanded(each, shown, environ) for each in value]
    if isinstance(value, dict):
        return {key: expanded(each, shown, environ) for key, each in value.items()}
    if not isinstance(value, str):
        return value

    def replaced(form: re.Match[str]) -> str:
        if form["literal"]:
            return "${"
        inside = _INSIDE.fullmatch(form["inside"])
        if not form["end"] or inside is None:
            # The text is not shown: it may be a secret.
            raise ValueError(
                "a ${ does not begin a variable; write ${NAME}, ${NAME:-default}, or $${ for ${ "
                "itself"
            )
        name, text = inside["name"], environ.get(inside["name"], "")
        if shown is None:
            learn(text)
        elif is_secret(name) or holds_secret(text):
            raise ValueError(
                f"the variable {name} holds a secret, and values of a job file are shown and "
                "recorded; use password-file or another place of passwords"
            )
        elif name not in shown:
            raise ValueError(
                f"the variable {name} may hold a secret, and values of a job file are shown and "
                f'recorded; if others may see it, write shown-variables = ["{name}"] at the top of '
                "the file, or add the name to that list"
            )
        if any("\ud800" <= each <= "\udfff" for each in text):
            raise ValueError(f"the variable {name} holds bytes that are not text")
        if not text and inside["default"] is None:
            raise ValueError(
                f"the variable {name} is not set; set it, or write ${{{name}:-default}}"
            )
        return text or inside["default"]

    return FORM.sub(replaced, value)


def key_of(written: str) -> str:
    """Return a key as it is known here, however it is written."""
    return written.replace("-", "_").lower()


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
        """Return the place of a key, or of the innermost table around it whose line is known."""
        while path and path not in self.lines:
            path = path[:-1]
        return Place(path=self.path, line=self.lines.get(path))


def documents(path: Path, report: Report) -> tuple[Document, ...]:
    """Return a job file and all that it includes; later ones override those before.

    Raises:
        ConfigError: The file itself cannot be read or is not TOML.
    """
    seen: set[str] = set()

    def read(path: str, around: tuple[str, ...], shown: frozenset[str]) -> Iterator[Document]:
        text, content = read_toml(Path(path))
        real = os.path.realpath(path)
        names, written = _items(content, SHOWN)
        valid = all(isinstance(each, str) and re.fullmatch(_NAME, each) for each in names)
        document = Document(
            path=path,
            content=content,
            lines=lines_of(text),
            counts_entries=real not in seen,
            shown=shown.union(names) if valid else shown,
        )
        seen.add(real)
        if not valid:
            why = f"{SHOWN}: it is not a list of names of variables"
            hint = f'write {SHOWN} = ["NAME"]'
            report(mistake(document.place(written), why, hint, key=SHOWN))
        around = (*around, path)
        items, written = _items(content, INCLUDE)
        place, circle = document.place(written), [os.path.realpath(each) for each in around]

        def wrong(error: ValueError | ConfigError, usual: str = "") -> None:
            why, _, hint = str(error).partition("; ")
            kind: type[UnloaderError] = UsageError
            if isinstance(error, ConfigError):
                why, hint, kind = error.message, error.hint, ConfigError
            found = mistake(place, f"{INCLUDE}: {why}", hint or usual, key=INCLUDE, kind=kind)
            report(found)

        for item in items:
            try:
                if not isinstance(item, str) or not item.strip():
                    raise ValueError("it is neither a path in quotes nor a list of such paths")
                # From where this process is.
                inner = os.path.join(
                    os.path.dirname(path), at_home(str(expanded(item, document.shown)))
                )
                if (again := os.path.realpath(inner)) in circle:
                    first = circle.index(again)
                    way = ", which includes ".join((*around[first + 1 :], inner))
                    raise ValueError(
                        f"files include each other in a circle: {around[first]} includes {way}; "
                        "remove one of these includes"
                    )
                # A mistake inside the file has its own place.
                yield from read(inner, around, document.shown)
            except (ValueError, ConfigError) as error:
                wrong(error, f'write {INCLUDE} = ["base.toml"]')
        yield document

    return tuple(read(str(path), (), frozenset()))


def _items(content: Mapping[str, Any], key: str) -> tuple[list[Any], str]:
    """Return the items of a list or of a single value, and the key as it is written."""
    for written, value in content.items():
        if key_of(written) == key_of(key):
            return value if isinstance(value, list) else [value], written
    return [], key
