"""The types of values that options take: each reads text and the values of a job file."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Union

from msgspec import Struct
from msgspec.structs import replace

from unloader.request import settings

_ANY_NUMBER = (str, int, float)


class Kind(Struct, frozen=True):
    """A kind of value; by default it is plain text."""

    shown: str
    """Text for the value on the help page."""
    parse: Callable[[str], Any] | None = None
    """Reads a text, or raises `ValueError`; None takes the text as it is."""
    write: Callable[[Any], str] = str
    """Returns the shortest text that is read as the same value."""
    takes: tuple[Any, ...] = (str,)
    """Types of TOML values that a job file may have for it, lists aside."""
    pattern: str = ""
    """Regular expression of the texts that mean something, for editors; empty for any text."""
    example: str = ""
    """A value for the example of a help page."""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    is_path: bool = False
    """`~/` in it is the home directory, where no shell has seen it."""
    only: str = ""
    """For a path, `file` or `directory` if it must be one where it exists."""
    lists: bool = False
    """A job file may have a list for it, although the option is not repeated."""

    @property
    def is_whole(self) -> bool:
        return self.takes[:1] == (int,)

    @property
    def has_lists(self) -> bool:
        return self.lists or isinstance(self, Items)

    @property
    def toml(self) -> Any:
        """The type of its values in a job file, as `msgspec.convert` checks it."""
        if not self.takes:
            return None
        items: Any = Union[self.takes if self.lists else (str,)]  # noqa: UP007
        forms: Any = Union[self.takes]  # noqa: UP007
        return forms | list[items] if self.has_lists else forms

    @property
    def expected(self) -> str:
        """The types of its values in words, for the user."""
        number = "a number" if float in self.takes else "a whole number"
        words = {bool: "true or false", int: number, str: "text in quotes"}
        found = [word for kind, word in words.items() if kind in self.takes]
        found += ["a list"] if self.has_lists else []
        found += ["a table"] if len(self.takes) > 1 and isinstance(self, Items) else []
        return " or ".join(found)

    def read(self, value: Any) -> Any:
        """Return the meaning of a text or of a value of a job file; ValueError is for the user."""
        if self.lists and isinstance(value, tuple):
            return value
        if self.parse is None:
            _refuse_nul(value)
            found = value
        else:
            is_list = isinstance(value, list)
            found = self.parse(",".join(map(str, value)) if is_list else str(value))
        if self.choices and found not in self.choices:
            raise ValueError(f"{value!r} is not one of {', '.join(self.choices)}")
        if self.maximum is None and self.minimum is not None and found < self.minimum:
            raise ValueError(f"{value} is below {self.minimum}")
        if self.maximum is not None and not (self.minimum or 0) <= found <= self.maximum:
            raise ValueError(f"{found} is not in the range from {self.minimum} to {self.maximum}")
        return found


class Items(Kind, frozen=True):
    """Texts; the option may be repeated. A list of a job file is taken as it is."""

    split: Callable[[str], tuple[Any, ...]] = settings.split_list
    """Returns the items of one occurrence."""
    parsed: bool = False
    """The field in the request has the items as `parse` reads them."""
    quoted: bool = True
    """A name of a table of a job file is put in double quotes where it is not plain."""

    def read(self, value: Any) -> Any:
        """Return the items of one occurrence, a list or a table, each read by `parse` as a test."""
        if isinstance(value, dict):
            value = tuple(
                f"{_quoted(str(name)) if self.quoted else name}={_method(each)}"
                for name, each in value.items()
            )
        items = value if isinstance(value, tuple) else self.split(str(value))
        for item in items:
            _refuse_nul(item)
            if self.parse is not None:
                self.parse(item)
        return items


def _refuse_nul(value: Any) -> None:
    # No system call and no database takes it.
    if "\0" in str(value):
        raise ValueError("it holds the character NUL")


def _method(value: Any) -> str:
    """Return the text of a value in a table; of a method, with its parameters."""
    if not isinstance(value, dict):
        return str(value)
    rest = (f"{k}={settings.quoted_value(str(v))}" for k, v in value.items() if k != "method")
    return ",".join((str(value.get("method", "")), *rest))


def _quoted(name: str) -> str:
    """Return a name so that it is one item of a list, and quoted only where it has to be."""
    return name if re.fullmatch(r"[^\s,=\"]+", name) else '"' + name.replace('"', '""') + '"'


def _one(text: str) -> tuple[str, ...]:
    return (text,)


def choice(*words: str) -> Kind:
    return Kind("|".join(words), choices=words)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def whole(minimum: int, maximum: int | None = None) -> Kind:
    """Return the kind of whole numbers in a range, both ends included."""
    # A plan file has numbers as they were written on the command line.
    takes = (int, str)
    return Kind("N", _integer, takes=takes, example="8", minimum=minimum, maximum=maximum)


def path(shown: str, only: str = "") -> Kind:
    """Return the kind of paths; `only` is the kind that a path must have if it exists."""
    return Kind(shown, is_path=True, only=only)


def several(of: Kind) -> Kind:
    """Return the kind of values of another kind, separated by commas, each once."""

    def read(text: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(of.read(item.strip()) for item in text.split(",")))

    def write(value: Any) -> str:
        return ",".join(map(of.write, value if isinstance(value, tuple) else (value,)))

    return Kind(f"{of.shown},...", read, write, of.takes, lists=True)


def _pairs(shown: str, parse: Callable[[str], Any] = settings.parse_assignment) -> Items:
    """Return the kind of `NAME=TEXT`; in a job file a list, or a table."""
    return Items(shown, parse, takes=(str, dict[str, int | str]), split=_one)


_in_units = partial(settings.in_largest_unit, step=1024, units=("KiB", "MiB", "GiB", "TiB"))
_in_thousands = partial(settings.in_largest_unit, step=1000, units=("k", "M", "G"))
_percent = partial(Kind, "PERCENT", write=settings.percent_text, takes=_ANY_NUMBER, example="5%")
_seconds = partial(Kind, write="{:g}".format, takes=_ANY_NUMBER)

FLAG = Kind("", settings.boolean, lambda value: str(value).lower(), (bool,))
FILE = path("FILE", "file")
SIZE = Kind("SIZE", settings.parse_size, _in_units, (str, int), settings.SIZE_PATTERN, "64MiB")
SIZE_FROM_1 = replace(SIZE, minimum=1)
COUNT = Kind(
    "COUNT", settings.parse_count, _in_thousands, (str, int), settings.COUNT_PATTERN, "1000", (), 1
)
SECONDS = _seconds(
    "SECONDS", settings.parse_seconds, pattern=settings.SECONDS_PATTERN, example="90"
)
KEEPING = _seconds("DURATION", settings.keeping, example="12h")
NUMBER = _seconds("NUMBER", settings.number)
HOURS = Kind(
    "HH:MM-HH:MM", settings.hours, pattern=r"^\s*[0-9]{1,2}:[0-9]{2}-[0-9]{1,2}:[0-9]{2}\s*$"
)
HOURS_OR_NONE = Kind(
    "HH:MM-HH:MM|never",
    lambda text: "never" if text.strip().lower() == "never" else settings.hours(text),
)
SHARE = _percent(partial(settings.any_percent, positive=True))
PERCENT = _percent(settings.any_percent)
PERCENT_BELOW_100 = _percent(settings.parse_percent)
PARALLELISM = Kind(
    "N|auto", settings.parallelism, settings.parallelism_text, (str, int), example="8"
)
RUN_PARALLELISM = Kind(
    "N|auto|adaptive",
    partial(settings.parallelism, words={"auto": 0, "adaptive": settings.ADAPTIVE}),
    settings.parallelism_text,
    (str, int),
    r"^\s*(auto|adaptive|[0-9]{1,9})\s*$",
    example="8",
)
LEVELS = Kind(
    "LEVELS",
    settings.parse_levels,
    lambda levels: ",".join(map(str, levels)),
    (str, int),
    example="1,2,4,8",
)
PART = Kind("K/N", settings.parse_part, settings.part_text, pattern=settings.PART_PATTERN)
CLUSTER = Kind("ADDRESS", settings.parse_cluster)
NUMBER_FORM = Kind("FORM", settings.number_form)
COMPRESSION = Kind(
    "CODEC[:LEVEL]",
    settings.parse_compression,
    pattern=rf"^\s*({'|'.join((*settings.CODECS, *settings.PRESETS))})(:-?[0-9]+)?\s*$",
)
TEXT = Kind("TEXT", settings.unescape)
END_OF_LINE = Kind("lf|crlf|TEXT", settings.end_of_line)
ENCODING = Kind("NAME", settings.encoding)
MODE = Kind("OCTAL", settings.file_mode, "{:03o}".format, example="640")
OWNER_GROUP = Kind("[USER][:GROUP]", settings.owner_group)
NUMBERS = Kind(
    "LIST",
    lambda text: () if text.strip().lower() == "all" else settings.parse_numbers(text),
    takes=(str, int),
    example="0,1",
    lists=True,
)
NAMES = Items("NAMES")
GLOBS = Items("GLOBS", split=settings.plain_names)
TABLES = Items("T", split=_one)
SCHEMAS = Items("S", split=_one)
ORDER = Items("ORDER", settings.parse_order, parsed=True)
PARTITION = Items("FIELD", settings.parse_partition, split=_one, parsed=True)
PLACES = Items("DEST", split=settings.places, is_path=True)
FILES = Items("FILE|DEST", split=settings.plain_names)
RECIPIENTS = Items("RECIPIENT", split=settings.plain_names)
VARIABLES = Items("NAME", settings.variable)
STATEMENTS = Items("SQL", settings.statement, split=_one, parsed=True)
WIDTHS = Items("COLUMN=BYTES", settings.parse_width, takes=(str, dict[str, int | str]), parsed=True)
RENAMES = _pairs("COLUMN=NAME")
CASTS = _pairs("COLUMN=TYPE")
CONSTANTS = _pairs("COLUMN=TEXT")
EXPRESSIONS = _pairs("COLUMN=SQL")
MASKS = replace(
    _pairs("COLUMN=METHOD[,PARAMETER=VALUE]", settings.parse_mask),
    takes=(str, dict[str, int | str | dict[str, int | str]]),
)
KEY_PLACES = replace(_pairs("[NAME=]PLACE", settings.parse_key_place), quoted=False)
ROUTES = Items("NAME:KEY=VALUE,...", takes=(), split=lambda text: (settings.parse_route(text),))
