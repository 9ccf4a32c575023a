"""Final names of output files: the user's template, filled in safely."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import ConfigError, OutputFailed, UsageError

FIELDS = ("schema", "table", "partition", "unit", "part", "ext", "date")
DEFAULT_TABLE_TEMPLATE = "{table}{part}.{ext}"
"""Used instead of the default of --file-name where one file holds the whole table."""

_FIELD = re.compile(r"\{([^{}]*)\}")
DIRECTIONS = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Unicode's ends of line, and the characters that change the direction of text."""
_COMMANDS = rf"\x00-\x1f\x7f-\x9f{DIRECTIONS}"
_UNSAFE = re.compile(rf"[{_COMMANDS}/\\]")
_NO_START = (".", "_", "-")
MAX_BYTES = 255


class NameValues(Struct, frozen=True, kw_only=True):
    """The values of a template's fields in one file."""

    schema: str
    table: str
    partition: str
    unit: str
    part: int | None
    """Number of the file within its unit, from 1; None where a unit has one file only."""
    ext: str
    date: str
    """Day of the snapshot, YYYYMMDD."""


class UnitNames(Struct, frozen=True, kw_only=True):
    """The final names of one unit's files: a function that can be sent to another process."""

    template: str
    values: NameValues
    """Of the first file."""

    def __call__(self, number: int) -> str:
        """Return the name of a file by its number, from 0.

        Raises:
            OutputFailed: As `file_name`.
        """
        if self.values.part == number + 1 or self.values.part is None:
            return file_name(self.template, self.values)
        return file_name(self.template, replace(self.values, part=number + 1))


def check_template(
    template: str, *, per_unit: bool, parts: bool, option: str = "--file-name"
) -> None:
    """Check that a template has known fields only and tells all files of a run apart.

    Raises:
        UsageError: It does not; the message names the field.
    """
    alone = set(_FIELD.sub("", template)) & set("{}")
    if alone:
        raise UsageError(
            f"{option} {template} has a brace that is not {'closed' if '{' in alone else 'opened'}",
            "write both braces of a field, such as {unit}",
        )
    used = _FIELD.findall(template)
    for name in used:
        if name not in FIELDS:
            raise UsageError(
                f"{option} has an unknown field {{{name}}}",
                "use " + " ".join(f"{{{field}}}" for field in FIELDS),
            )
    for name, needed in (("unit", per_unit), ("part", parts)):
        if needed and name not in used:
            raise UsageError(
                f"{option} {template} gives several files the same name", f"add {{{name}}} to it"
            )
    odd = re.search(rf"[{_COMMANDS}/]", template)
    if odd or template.startswith(_NO_START):
        raise UsageError(
            f"{option} {template} is not a plain file name",
            "leave out slashes and control characters, and begin with no dot, underscore or hyphen",
        )


def file_name(template: str, values: NameValues) -> str:
    """Return the name of one file; characters that are unsafe in a name become `%XX`.

    So does a dot or an underscore at the beginning: such names are the run's own, and readers of
    whole directories skip them. So does a hyphen, which other programs take for an option.

    Raises:
        OutputFailed: The name is longer than file systems allow.
    """
    part = "" if values.part is None else f".{values.part:03d}"
    filled = {
        "schema": values.schema,
        "table": values.table,
        "partition": values.partition,
        "unit": values.unit,
        "part": part,
        "ext": values.ext,
        "date": values.date,
    }
    name = _filled(template, filled)
    if len(name.encode()) > MAX_BYTES:
        raise too_long("file", name, "--file-name")
    return name


def too_long(what: str, name: str, option: str) -> OutputFailed:
    """Return the error for a name with more bytes than file systems take.

    Args:
        what: The kind of thing with the name: a file or a directory.
        name: The name.
        option: The option that made it.
    """
    key = option.removeprefix("--")
    return OutputFailed(
        f"the {what} name {name[:40]} ... {name[-10:]} has {len(name.encode())} bytes, and file "
        f"systems take {MAX_BYTES}",
        f"leave a field out of {option}; of several tables, give this one its own {key} in a "
        "[[table]] of a job file, or leave it out with --exclude-table",
    )


def any_name(template: str, values: NameValues) -> str:
    """Return what all names of a run are like, with `*` for any text: unit, partition and part."""
    filled = {"schema": values.schema, "table": values.table, "ext": values.ext}
    return _filled(template, {**filled, "date": values.date})


def check_distinct(names: Iterable[str]) -> None:
    """Check that no two files get one name, also where the file system ignores case.

    Raises:
        ConfigError: Two do.
    """
    seen: set[str] = set()
    for name in names:
        folded = name.casefold()
        if folded in seen:
            raise ConfigError(
                f"two files would be named {name}", "add {unit} and {part} to --file-name"
            )
        seen.add(folded)


def safe_part(text: str) -> str:
    """Return a text as a part of a name of a file or directory; unsafe characters become `%XX`.

    Unsafe are slashes, backslashes, control characters and what changes the direction of text.
    """
    if _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(lambda match: quote(match.group(), safe=""), text)


def safe_start(name: str) -> str:
    """Return a name whose first character is `%XX` if it is a dot, an underscore or a hyphen."""
    return f"%{ord(name[0]):02X}{name[1:]}" if name.startswith(_NO_START) else name


def _filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its fields filled; `*` for fields without a value."""
    found = []
    for literal, field in _pieces(template):
        found.append(literal)
        if field is not None:
            known = values.get(field)
            found.append("*" if known is None else safe_part(known))
    return safe_start("".join(found))


@lru_cache(maxsize=64)
def _pieces(template: str) -> tuple[tuple[str, str | None], ...]:
    """Return each text of a template with the field that follows it; None for the last one."""
    parts = _FIELD.split(template)
    return tuple(zip(parts[::2], (*parts[1::2], None), strict=True))
