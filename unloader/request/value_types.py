"""The types of values that options take: each reads text and the values of a job file.

Text that means nothing is a `ValueError`, whose message is fit for the user.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Union

from msgspec import Struct
from msgspec.structs import replace

from unloader.request import settings
from unloader.request.settings import ADAPTIVE, CODECS, MAX_NUMBER, PRESETS, parse_seconds
from writers.model import Compression

_ANY_NUMBER = (str, int, float)


LONGEST_DAYS = 30
"""The longest time to keep a snapshot. Long before that the server is in trouble."""

MAX_DECIMAL = 38
"""Digits of the widest decimal that every reader of Parquet knows."""

MOST_LEVELS = 1000

_RANGE = re.compile(r"([0-9]{1,9})(?:\.\.([0-9]{1,9})(?::([+-]?[0-9]{1,9}))?)?", re.ASCII)

_TRUE, _FALSE = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")


def in_largest_unit(number: int, step: int, units: tuple[str, ...]) -> str:
    """Return a whole number as it is written, in the largest unit that is exact."""
    for power in range(len(units), 0, -1):
        if number and number % step**power == 0:
            return f"{number // step**power}{units[power - 1]}"
    return str(number)


def keeping(text: str) -> float:
    seconds = parse_seconds(text)
    if seconds > LONGEST_DAYS * 86_400:
        raise ValueError(f"{text} is more than {LONGEST_DAYS} days, which is too long for a server")
    return seconds


def number(text: str) -> float:
    most = 1e9
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12}", text.strip()):
        raise ValueError(f"{text!r} is not a number above 0; write for instance 165 or 1.35")
    found = float(text)
    if not 0 < found <= most:
        raise ValueError(f"{text!r} is not a number above 0 and up to {most:,.0f}")
    return found


def hours(text: str) -> str:
    settings.parse_hours(text)
    return text.strip()


def parallelism(text: str, words: Mapping[str, int] = {"auto": 0}) -> int:
    found = words.get(text.strip().lower())
    if found is None and re.fullmatch(r"[0-9]{1,9}", text.strip()):
        found = int(text)
        found = found if 1 <= found <= MAX_NUMBER else None
    if found is None:
        neither = " nor ".join((", ".join(words), f"a number of workers from 1 to {MAX_NUMBER}"))
        raise ValueError(f"{text!r} is neither {neither}")
    return found


def parse_compression(text: str) -> Compression | str:
    codec, colon, level = text.strip().lower().partition(":")
    if codec in PRESETS and not colon:
        return codec
    if codec not in CODECS:
        raise ValueError(f"{codec!r} is not one of {', '.join((*CODECS, *PRESETS))}")
    if not colon:
        return Compression(codec=codec)  # type: ignore[arg-type]
    if codec in ("none", "snappy"):
        raise ValueError(f"{codec} has no levels")
    try:
        return Compression(codec=codec, level=int(level))  # type: ignore[arg-type]
    except ValueError:
        raise ValueError(f"{level!r} is not a level; write for instance {codec}:3") from None


def number_form(text: str) -> str:
    """Return `string`, `double` or `decimal(38,10)`, without blanks."""
    form = text.strip().lower().replace(" ", "")
    match = re.fullmatch(r"decimal\((\d{1,2}),(\d{1,2})\)", form)
    if match and 1 <= int(match[1]) <= MAX_DECIMAL and int(match[2]) <= int(match[1]):
        return form
    if form not in ("string", "double"):
        raise ValueError(
            f"{text!r} is not a form; write string, double or for instance decimal(38,10), with a "
            f"precision from 1 to {MAX_DECIMAL} and a scale up to the precision"
        )
    return form


def end_of_line(text: str) -> str:
    """Return the characters of `lf`, of `crlf` or of a text with escapes."""
    return {"lf": "\n", "crlf": "\r\n"}.get(text.lower()) or settings.unescape(text)


def encoding(text: str) -> str:
    try:
        return codecs.lookup(text).name
    except (LookupError, ValueError):
        raise ValueError(f"{text!r} is not a character encoding that Python knows") from None


def file_mode(text: str) -> int:
    """Return the rights of `640`, which let the owner read."""
    if not re.fullmatch("0?[0-7]{3}", text.strip()):
        raise ValueError("it is not a file mode; write three octal digits, such as 640")
    mode = int(text, 8)
    if not mode & 0o400:
        raise ValueError(f"{mode:03o} does not let the owner read; write for instance 640")
    return mode


def boolean(text: str) -> bool:
    """Return the meaning of `true`, `yes`, `on`, `1` and their opposites."""
    word = text.strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise ValueError(f"{text!r} is neither true nor false")
    return word in _TRUE


def owner_group(text: str) -> str:
    if not re.fullmatch(r"[\w.@$\\-]+|[\w.@$\\-]*:[\w.@$\\-]+", text.strip()):
        raise ValueError("it is not USER, :GROUP or USER:GROUP")
    return text.strip()


def variable(text: str) -> str:
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", text.strip()):
        # It is not shown: `NAME=VALUE` may have been meant.
        raise ValueError("an item is not the name of a variable; give names without values")
    return text.strip()


def statement(text: str) -> str:
    """Return an SQL statement without the semicolon at its end, as a shell script has it."""
    if not text.strip():
        raise ValueError("a statement is empty")
    return text.strip().rstrip(";")


def quoted_value(text: str) -> str:
    if re.fullmatch(r'[^,"\s][^,"]*', text) and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


def parse_levels(text: str) -> tuple[int, ...]:
    """Return the levels of `32..4:-4,3,2` in the order written, each once."""
    found: dict[int, None] = {}
    for item in map(str.strip, text.split(",")):
        match = _RANGE.fullmatch(item)
        if match is None:
            what = f"{item!r} is not a level" if item else "a level is empty"
            raise ValueError(
                f"{what}; write numbers and ranges with a step, such as 1,2,4 or 32..4:-4,3,2"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        direction = -1 if last < first else 1
        step = int(match[3] or direction)
        if step * direction <= 0:
            raise ValueError(
                f"the step of {item} does not lead from {first} to {last}; write "
                f"{first}..{last}:{direction * (abs(step) or 1):+d}"
            )
        for level in range(first, last + direction, step):
            if not 1 <= level <= MAX_NUMBER:
                raise ValueError(f"{level} is not a number of workers from 1 to {MAX_NUMBER}")
            found[level] = None
            if len(found) > MOST_LEVELS:
                raise ValueError(f"there are more than {MOST_LEVELS} levels")
    return tuple(found)


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
    split: Callable[[str], tuple[Any, ...]] | None = None
    """Returns the items of one occurrence of an option that may be repeated. A list of a job file
    is taken as it is."""
    parsed: bool = False
    """The field in the request has the items as `parse` reads them."""
    quoted: bool = True
    """A name of a table of a job file is put in double quotes where it is not plain."""

    @property
    def is_whole(self) -> bool:
        return self.takes[:1] == (int,)

    @property
    def has_lists(self) -> bool:
        return self.lists or self.split is not None

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
        found += ["a table"] if len(self.takes) > 1 and self.split is not None else []
        return " or ".join(found)

    def read(self, value: Any) -> Any:
        """Return the meaning of a text or of a value of a job file; ValueError is for the user.

        Of an option that may be repeated, it is the items of one occurrence, a list or a table.
        """
        if self.split is not None:
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


def _refuse_nul(value: Any) -> None:
    # No system call and no database takes it.
    if "\0" in str(value):
        raise ValueError("it holds the character NUL")


def _method(value: Any) -> str:
    """Return the text of a value in a table; of a method, with its parameters."""
    if not isinstance(value, dict):
        return str(value)
    rest = (f"{k}={quoted_value(str(v))}" for k, v in value.items() if k != "method")
    return ",".join((str(value.get("method", "")), *rest))


def _quoted(name: str) -> str:
    """Return a name so that it is one item of a list, and quoted only where it has to be."""
    return name if re.fullmatch(r"[^\s,=\"]+", name) else '"' + name.replace('"', '""') + '"'


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


_in_units = partial(in_largest_unit, step=1024, units=("KiB", "MiB", "GiB", "TiB"))
_in_thousands = partial(in_largest_unit, step=1000, units=("k", "M", "G"))
_percent = partial(Kind, "PERCENT", write=settings.percent_text, takes=_ANY_NUMBER, example="5%")
_seconds = partial(Kind, write="{:g}".format, takes=_ANY_NUMBER)

FLAG = Kind("", boolean, lambda value: str(value).lower(), (bool,))
FILE = path("FILE", "file")
FILE_OR_STDOUT = path("FILE|-", "file")
SIZE = Kind("SIZE", settings.parse_size, _in_units, (str, int), settings.SIZE_PATTERN, "64MiB")
SIZE_FROM_1 = replace(SIZE, minimum=1)
COUNT = Kind(
    "COUNT", settings.parse_count, _in_thousands, (str, int), settings.COUNT_PATTERN, "1000", (), 1
)
SECONDS = _seconds("SECONDS", parse_seconds, pattern=settings.SECONDS_PATTERN, example="90")
KEEPING = _seconds("DURATION", keeping, example="12h")
NUMBER = _seconds("NUMBER", number)
HOURS = Kind("HH:MM-HH:MM", hours, pattern=r"^\s*[0-9]{1,2}:[0-9]{2}-[0-9]{1,2}:[0-9]{2}\s*$")
HOURS_OR_NONE = Kind(
    "HH:MM-HH:MM|never", lambda text: "never" if text.strip().lower() == "never" else hours(text)
)
SHARE = _percent(partial(settings.any_percent, positive=True))
PERCENT = _percent(settings.any_percent)
PERCENT_BELOW_100 = _percent(settings.parse_percent)
_workers = partial(
    Kind,
    write=lambda value: {0: "auto", ADAPTIVE: "adaptive"}.get(value, str(value)),
    takes=(str, int),
    example="8",
)
PARALLELISM = _workers("N|auto", parallelism)
RUN_PARALLELISM = _workers(
    "N|auto|adaptive",
    partial(parallelism, words={"auto": 0, "adaptive": ADAPTIVE}),
    pattern=r"^\s*(auto|adaptive|[0-9]{1,9})\s*$",
)
LEVELS = Kind(
    "LEVELS", parse_levels, lambda levels: ",".join(map(str, levels)), (str, int), example="1,2,4,8"
)
PART = Kind("K/N", settings.parse_part, settings.part_text, pattern=settings.PART_PATTERN)
CLUSTER = Kind("ADDRESS", settings.parse_cluster)
NUMBER_FORM = Kind("FORM", number_form)
COMPRESSION = Kind(
    "CODEC[:LEVEL]",
    parse_compression,
    pattern=rf"^\s*({'|'.join((*CODECS, *PRESETS))})(:-?[0-9]+)?\s*$",
)
TEXT = Kind("TEXT", settings.unescape)
END_OF_LINE = Kind("lf|crlf|TEXT", end_of_line)
ENCODING = Kind("NAME", encoding)
MODE = Kind("OCTAL", file_mode, "{:03o}".format, example="640")
OWNER_GROUP = Kind("[USER][:GROUP]", owner_group)
NUMBERS = Kind(
    "LIST",
    lambda text: () if text.strip().lower() == "all" else settings.parse_numbers(text),
    takes=(str, int),
    example="0,1",
    lists=True,
)
_items = partial(Kind, split=settings.split_list)
_single = partial(Kind, split=lambda text: (text,))
_pairs = partial(_single, parse=settings.parse_assignment, takes=(str, dict[str, int | str]))
"""`NAME=TEXT`; in a job file a list, or a table."""
NAMES = _items("NAMES")
GLOBS = Kind("GLOBS", split=settings.plain_names)
TABLES = _single("T")
SCHEMAS = _single("S")
ORDER = _items("ORDER", settings.parse_order, parsed=True)
PARTITION = _single("FIELD", settings.parse_partition, parsed=True)
PLACES = Kind(
    "DEST",
    # The rules decide the meaning of an empty text.
    split=lambda text: settings.plain_names(text) if text.strip() else ("",),
    is_path=True,
)
FILES = Kind("FILE|DEST", split=settings.plain_names)
RECIPIENTS = Kind("RECIPIENT", split=settings.plain_names)
VARIABLES = _items("NAME", variable)
STATEMENTS = _single("SQL", statement, parsed=True)
WIDTHS = _items(
    "COLUMN=BYTES", settings.parse_width, takes=(str, dict[str, int | str]), parsed=True
)
RENAMES = _pairs("COLUMN=NAME")
CASTS = _pairs("COLUMN=TYPE")
CONSTANTS = _pairs("COLUMN=TEXT")
EXPRESSIONS = _pairs("COLUMN=SQL")
MASKS = _pairs(
    "COLUMN=METHOD[,PARAMETER=VALUE]",
    parse=settings.parse_mask,
    takes=(str, dict[str, int | str | dict[str, int | str]]),
)
KEY_PLACES = _pairs("[NAME=]PLACE", parse=settings.parse_key_place, quoted=False)
ROUTES = Kind("NAME:KEY=VALUE,...", takes=(), split=lambda text: (settings.parse_route(text),))
