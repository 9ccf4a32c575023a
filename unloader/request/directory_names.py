"""Directories of `--to` that have fields in their names, filled in once for each run."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence

from msgspec import Struct

from unloader.errors import ConfigError, UsageError
from unloader.request.file_names import MAX_BYTES, safe_part, safe_start, too_long
from writers.objects.location import is_location

FIELDS = ("schema", "table", "date", "run_id")
DATED = ("date", "run_id")
"""Fields that make the directory of each run, or of each day, another one."""

TABLE_FIELDS = ("schema", "table")
"""Fields that tell the directories of the tables of one run apart."""

_FIELD = re.compile(r"\{([^{}]*)\}")

_ANY = {"date": r"\d{8}", "run_id": r"\d{8}T\d{6}Z-[0-9a-f]+"}
"""What a field is in the name of any run's directory; others may be any text."""


class DirectoryValues(Struct, frozen=True, kw_only=True):
    """The values of the fields in one run."""

    schema: str
    table: str
    date: str
    """Day of the snapshot in UTC, YYYYMMDD."""
    run_id: str


def check_directory(place: str) -> None:
    """Check that a directory of `--to` has known fields only, and no `..` after one.

    Raises:
        UsageError: It does not; the message names the field.
    """
    if alone := set(_FIELD.sub("", place)) & set("{}"):
        raise UsageError(
            f"--to {place} has a brace that is not {'closed' if '{' in alone else 'opened'}",
            "write both braces of a field, such as {date}",
        )
    for name in _FIELD.findall(place):
        if name not in FIELDS:
            raise UsageError(
                f"--to {place} has an unknown field {{{name}}}",
                "use " + " ".join(f"{{{field}}}" for field in FIELDS),
            )
    parts = place.split("/")
    filled = next((at for at, part in enumerate(parts) if has_fields(part)), len(parts))
    if ".." in parts[filled:] and not is_location(place):
        raise UsageError(
            f"--to {place} has .. after a field, and would make a directory that nothing uses",
            f"leave the .. out: --to {shlex.quote(os.path.normpath(place))}",
        )


def has_fields(place: str) -> bool:
    """Return whether a directory is another one for other runs."""
    return _FIELD.search(place) is not None


def directories_above(place: str) -> int:
    """Return how many parts of a directory come before the first that differs between tables."""
    parts = _options_apart(place)[0].rstrip("/").split("/")
    for number, part in enumerate(parts):
        if any(field in TABLE_FIELDS for field in _FIELD.findall(part)):
            return number
    return len(parts)


def home_template(place: str) -> str:
    """Return the part of a directory of `--to` that is the same for all tables of a run."""
    return above(place, directories_above(place))


def above(place: str, parts: int) -> str:
    """Return this number of parts of a directory, or of a place in an object store with its
    options."""
    directory, options = _options_apart(place)
    return "/".join(directory.rstrip("/").split("/")[:parts]) + options


def is_dated(place: str) -> bool:
    """Return whether the directories of all runs differ by date or run, and lie side by side."""
    parent, name = _split(place)
    outer, inner = _FIELD.findall(parent), _FIELD.findall(name)
    return any(each in DATED for each in inner) and not any(each in DATED for each in outer)


def directory_name(place: str, values: DirectoryValues) -> str:
    """Return the directory of one run; characters that are unsafe in a name become `%XX`.

    A dot, an underscore or a hyphen at the start of a name is replaced, too. So no value leads out
    of the directory, or is taken for a hidden file or an option.

    Raises:
        ConfigError: A name is empty.
        OutputFailed: It is longer than file systems allow.
    """
    directory, options = _options_apart(place)
    return "/".join(_filled(part, values) for part in directory.split("/")) + options


def beside(place: str, values: DirectoryValues) -> tuple[str, re.Pattern[str]]:
    """Return the place of the directories of all runs, and the pattern of this table's names.

    Args:
        place: For which `is_dated` holds.
        values: Of this run.
    """
    parent, name = _split(place)
    return directory_name(parent, values) or ".", re.compile(_pattern(name, values))


def existing(place: str, date: str, inside: Callable[[str], Sequence[str]]) -> tuple[str, ...]:
    """Return existing directories that may belong to runs, the newest first.

    Args:
        place: A directory of `--to`; its fields may have the values of any table and any run.
        date: The value of `{date}`.
        inside: Returns the names of the places in one: see `Storage.levels`.
    """
    directory, options = _options_apart(place)
    found = [""]
    for number, part in enumerate(directory.rstrip("/").split("/")):
        if not has_fields(part):
            found = [f"{each}/{part}" if number else part for each in found]
            continue
        pattern = re.compile(_pattern(part, None, date))
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


def _options_apart(place: str) -> tuple[str, str]:
    """Return a place without the options of an object store, and the options alone."""
    if not is_location(place):
        return place, ""
    directory, mark, options = place.partition("?")
    return directory, mark + options


def _split(place: str) -> tuple[str, str]:
    parent, slash, name = _options_apart(place)[0].rstrip("/").rpartition("/")
    return parent or slash, name


def _pattern(name: str, values: DirectoryValues | None, date: str = "") -> str:
    """Return what a name looks like; without values any table will do, without a date any day."""
    parts, at = [], 0
    any_run = {**_ANY, "date": date} if date else _ANY
    for field in _FIELD.finditer(name):
        parts.append(re.escape(name[at : field.start()]))
        at = field.end()
        if field[1] in any_run or values is None:
            parts.append(any_run.get(field[1], ".+"))
        else:
            value = safe_part(str(getattr(values, field[1])))
            parts.append(re.escape(safe_start(value) if not field.start() else value))
    return "".join((*parts, re.escape(name[at:])))


def _filled(part: str, values: DirectoryValues) -> str:
    if not has_fields(part):
        return part
    name = _FIELD.sub(lambda field: safe_part(str(getattr(values, field[1]))), part)
    if _FIELD.match(part):
        name = safe_start(name)
    if not name:
        raise ConfigError(
            f"the part {part} of --to is empty, since the run has no {part.strip('{}')}",
            "leave that field out",
        )
    if len(name.encode()) > MAX_BYTES:
        raise too_long("directory", name, "--to")
    return name
