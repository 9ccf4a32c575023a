"""Templates of `--file-name` and `--to`: names of files and directories, filled in safely."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import quote

from unloader.errors import ConfigError, OutputFailed, UsageError
from writers.objects.location import is_location

FILE_FIELDS = ("schema", "table", "partition", "unit", "part", "ext", "date")
DIRECTORY_FIELDS = ("schema", "table", "date", "run_id")
DATED = ("date", "run_id")
"""Fields that make the directory of each run, or of each day, a different one."""

DEFAULT_TABLE_TEMPLATE = "{table}{part}.{ext}"
"""Used instead of the default of --file-name where one file holds the whole table."""

DIRECTIONS = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Unicode's ends of line, and the characters that change the direction of text."""

LOB_EXTENSION = "lob"

MAX_BYTES = 255

_FIELD = re.compile(r"\{([^{}]*)\}")
_COMMANDS = rf"\x00-\x1f\x7f-\x9f{DIRECTIONS}"
_UNSAFE = re.compile(rf"[{_COMMANDS}/\\]")
_NO_START = (".", "_", "-")
_ANY = {"date": r"\d{8}", "run_id": r"\d{8}T\d{6}Z-[0-9a-f]+"}
"""What a field is in the name of any run's directory; others may be any text."""


Values = Mapping[str, str]
"""The values of the fields. `date` is the day of the snapshot in UTC, YYYYMMDD. `part` of a file is
empty where a unit has one file only."""


def check_template(
    template: str, *, per_unit: bool, parts: bool, option: str = "--file-name"
) -> None:
    """Raise UsageError for an unknown field, or if two files of a run would get one name."""
    used = _checked_fields(template, FILE_FIELDS, option, "{unit}")
    for name, needed in (("unit", per_unit), ("part", parts)):
        if needed and name not in used:
            raise UsageError(
                f"{option} {template} gives several files the same name", f"add {{{name}}} to it"
            )
    if re.search(rf"[{_COMMANDS}/]", template) or template.startswith(_NO_START):
        raise UsageError(
            f"{option} {template} is not a plain file name",
            "leave out slashes and control characters, and begin with no dot, underscore or hyphen",
        )


def check_directory(place: str) -> None:
    """Raise UsageError for an unknown field in a directory of `--to`, or a `..` after a field."""
    _checked_fields(place, DIRECTORY_FIELDS, "--to", "{date}")
    parts = place.split("/")
    filled = next((at for at, part in enumerate(parts) if has_fields(part)), len(parts))
    if ".." in parts[filled:] and not is_location(place):
        raise UsageError(
            f"--to {place} has .. after a field, and would make a directory that nothing uses",
            f"leave the .. out: --to {shlex.quote(os.path.normpath(place))}",
        )


def _checked_fields(template: str, fields: tuple[str, ...], option: str, example: str) -> list[str]:
    alone = set(_FIELD.sub("", template)) & set("{}")
    if alone:
        raise UsageError(
            f"{option} {template} has a brace that is not {'closed' if '{' in alone else 'opened'}",
            f"write both braces of a field, such as {example}",
        )
    used = _FIELD.findall(template)
    for name in used:
        if name not in fields:
            raise UsageError(
                f"{option} {template} has an unknown field {{{name}}}",
                "use " + " ".join(f"{{{field}}}" for field in fields),
            )
    return used


def has_fields(place: str) -> bool:
    """Return whether a directory is a different one for other runs."""
    return _FIELD.search(place) is not None


def file_name(template: str, values: Values, number: int = 0) -> str:
    """Return the name of a file by its number in its unit, from 0; unsafe characters become `%XX`.

    So does a dot or an underscore at the start, since readers of directories skip such names, and a
    hyphen, which other programs take for an option. A name that is too long is an OutputFailed.
    """
    part = f".{number + 1:03d}" if values["part"] else ""
    name = _filled(template, {**values, "part": part})
    if len(name.encode()) > MAX_BYTES:
        raise _too_long("file", name, "--file-name")
    return name


def lob_template(template: str) -> str:
    """Return the template of packed files for a template of files of rows.

    Each work unit and column has a file, and the column is a part of `{ext}`.
    """
    found = template if "{ext}" in template else f"{template}.{{ext}}"
    return found if "{unit}" in found else found.replace("{ext}", "{unit}.{ext}")


def lob_name(template: str, values: Values, column: str, *, pattern: bool = False) -> str:
    """Return the name of the packed file of a column, or with `pattern` what all of them are like.

    It has one dot: readers of LOB location specifiers may take a name up to its first dot.
    """
    own = {**values, "ext": f"{column}.{LOB_EXTENSION}", "part": ""}
    make = any_name if pattern else file_name
    stem, dot, extension = make(lob_template(template), own).rpartition(".")
    return f"{stem.replace('.', '_')}{dot}{extension}"


def lob_template_parts(template: str) -> tuple[str, ...]:
    """Return texts and names of key columns of `--lob-name` in turn; empty for no template.

    Raises UsageError if it has no field, or a text that would make no plain name.
    """
    if not template:
        return ()
    parts = tuple(_FIELD.split(template))
    _checked_fields(template, parts[1::2], "--lob-name", "{ORDER_ID}")
    names = _FIELD.sub("x", template).split("/")
    texts = "".join(parts[::2])
    if len(parts) == 1 or any(not each or each.startswith(".") for each in names):
        raise UsageError(
            f"--lob-name {template} needs the name of a key column in braces, and plain names "
            "between its slashes",
            "write it such as '{CUSTOMER}/{ORDER_ID}.jpg'",
        )
    if not re.fullmatch(r"[A-Za-z0-9\-_.~+,=@/]*", texts):
        raise UsageError(
            f"--lob-name {template} has a character that the names of files do not have",
            "use ASCII letters, digits and -_.~+,=@/ beside the fields",
        )
    return parts


def any_name(template: str, values: Values) -> str:
    """Return what all names of a run are like, with `*` for any text: unit, partition and part."""
    kept = ("schema", "table", "ext", "date")
    return _filled(template, {name: values[name] for name in kept})


def directory_name(place: str, values: Values) -> str:
    """Return the directory of one run, with unsafe characters replaced as in a name of a file.

    So no value leads out of the directory. An empty name is a ConfigError, a long one OutputFailed.
    """
    directory, options = _options_apart(place)
    names = []
    for part in directory.split("/"):
        name = _filled(part, values)
        if part and not name:
            raise ConfigError(
                f"the part {part} of --to is empty, since the run has no {part.strip('{}')}",
                "leave that field out",
            )
        if has_fields(part) and len(name.encode()) > MAX_BYTES:
            raise _too_long("directory", name, "--to")
        names.append(name)
    return "/".join(names) + options


def _filled(template: str, values: Values) -> str:
    """Return a template with its fields filled; `*` for fields without a value."""
    name = _FIELD.sub(lambda field: safe_part(values.get(field[1], "*")), template)
    return _safe_start(name) if _FIELD.match(template) else name


def safe_part(text: str) -> str:
    """Return a text with slashes, backslashes, control and direction characters as `%XX`."""
    return _UNSAFE.sub(lambda match: quote(match.group(), safe=""), text)


def _safe_start(name: str) -> str:
    return f"%{ord(name[0]):02X}{name[1:]}" if name.startswith(_NO_START) else name


def _too_long(what: str, name: str, option: str) -> OutputFailed:
    key = option.removeprefix("--")
    return OutputFailed(
        f"the {what} name {name[:40]} ... {name[-10:]} has {len(name.encode())} bytes, and file "
        f"systems take {MAX_BYTES}",
        f"leave a field out of {option}; of several tables, give this one its own {key} in a "
        "[[table]] of a job file, or leave it out with --exclude-table",
    )


def check_distinct(names: Iterable[str]) -> None:
    """Raise ConfigError if two files get one name, also where the file system ignores case."""
    seen: set[str] = set()
    for name in names:
        folded = name.casefold()
        if folded in seen:
            raise ConfigError(
                f"two files would be named {name}", "add {unit} and {part} to --file-name"
            )
        seen.add(folded)


def directories_above(place: str) -> int:
    """Return how many parts of a directory come before the first that differs between tables."""
    parts = _options_apart(place)[0].rstrip("/").split("/")
    tables = (at for at, part in enumerate(parts) if {"schema", "table"} & {*_FIELD.findall(part)})
    return next(tables, len(parts))


def home_template(place: str) -> str:
    """Return the part of a directory of `--to` that is the same for all tables of a run."""
    return above(place, directories_above(place))


def above(place: str, parts: int) -> str:
    """Return this number of parts of a place, with the options of an object store."""
    directory, options = _options_apart(place)
    return "/".join(directory.rstrip("/").split("/")[:parts]) + options


def is_dated(place: str) -> bool:
    """Return whether the directories of all runs differ by date or run, and are side by side."""
    parent, name = _split(place)
    outer, inner = _FIELD.findall(parent), _FIELD.findall(name)
    return any(each in DATED for each in inner) and not any(each in DATED for each in outer)


def beside(place: str, values: Values) -> tuple[str, re.Pattern[str]]:
    """Return the directory around the dated ones of all runs, and the pattern of their names."""
    parent, name = _split(place)
    known = {field: values[field] for field in ("schema", "table")}
    return directory_name(parent, values) or ".", _pattern(name, _ANY, known)


def existing(place: str, date: str, inside: Callable[[str], Sequence[str]]) -> tuple[str, ...]:
    """Return existing directories that may belong to runs of any table, the newest first.

    `inside` returns the names of the places in one: see `Storage.levels`.
    """
    directory, options = _options_apart(place)
    found = [""]
    for number, part in enumerate(directory.rstrip("/").split("/")):
        if not has_fields(part):
            found = [f"{each}/{part}" if number else part for each in found]
            continue
        pattern = _pattern(part, {**_ANY, "date": date or _ANY["date"]}, {})
        found = [
            f"{each}/{name}" if number else name
            for each in found
            for name in inside((each or ("/" if number else ".")) + options)
            if pattern.fullmatch(name)
        ]
    # The id of a run begins with the time of its start. A prefix is not checked here: a later
    # search for a run there finds nothing.
    return tuple(
        each + options for each in reversed(found) if is_location(place) or os.path.isdir(each)
    )


def _pattern(template: str, patterns: Values, values: Values) -> re.Pattern[str]:
    """Return the pattern of a name; a field without a pattern and a value may be any text."""
    parts, at = [], 0
    for field in _FIELD.finditer(template):
        parts.append(re.escape(template[at : field.start()]))
        at = field.end()
        text = safe_part(values.get(field[1], ""))
        known = re.escape(text if field.start() else _safe_start(text))
        parts.append(patterns.get(field[1]) or (known if field[1] in values else ".+"))
    return re.compile("".join((*parts, re.escape(template[at:]))))


def _options_apart(place: str) -> tuple[str, str]:
    """Return a place without the options of an object store, and the options alone."""
    if not is_location(place):
        return place, ""
    directory, mark, options = place.partition("?")
    return directory, mark + options


def _split(place: str) -> tuple[str, str]:
    parent, slash, name = _options_apart(place)[0].rstrip("/").rpartition("/")
    return parent or slash, name
