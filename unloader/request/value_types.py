"""The types of values that options take: each reads text and the values of a job file.

What cannot be understood is a `ValueError` whose message is fit for the user.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Any, Union

from unloader.request import masks, settings
from writers.model import Compression

MAX_WORKERS = 65536
"""More than any machine has CPUs (NR_CPUS of Linux is 8,192 at most)."""

MAX_DECIMAL = 38
"""Digits of the widest decimal that every reader of Parquet knows."""

LONGEST_DAYS = 30
"""The longest time to keep a snapshot. Long before that the server is in trouble."""

ADAPTIVE = -1
"""The value for the word `adaptive`; 0 is the value for `auto`."""

CODECS = ("none", "gzip", "zstd", "lz4", "snappy")
PRESETS = ("fastest", "balanced", "smallest")
"""The presets of `writers.codecs.choice`, repeated so that a help page need not import it."""

END_OF_LINES = {"lf": "\n", "crlf": "\r\n"}


class Kind:
    """A kind of value; this one is plain text."""

    takes: tuple[Any, ...] = (str,)
    """Types of TOML values that a job file may have for it, lists aside."""
    expected = "text in quotes"
    """The kinds of `takes` in words, for the user."""
    lists = False
    """A job file may have a list for it, although the option is not repeated."""
    is_path = False
    """`~/` in it is the home directory, where no shell has seen it."""
    pattern = ""
    """Regular expression of the texts that mean something, words in lower case; for editors. Empty
    where any text may."""
    repeated = False
    """The option may be repeated; the value is a tuple of all items."""

    def __init__(self, shown: str) -> None:
        """Set the text for the value on the help page."""
        self.shown = shown

    @property
    def toml(self) -> Any:
        """The type of its values in a job file, as `msgspec.convert` checks it."""
        if not self.takes:
            return None
        items: Any = Union[self.takes if self.lists else (str,)]  # noqa: UP007
        forms: Any = Union[self.takes]  # noqa: UP007
        return forms | list[items] if self.lists or self.repeated else forms

    def read(self, value: Any) -> Any:
        """Return what text, or a value of a job file, means.

        Raises:
            ValueError: It means nothing.
        """
        return value

    def write(self, value: Any) -> str:
        """Return a value as a user would write it."""
        return str(value)

    def field(self, value: Any) -> Any:
        """Return the value of the field in the request for a value of the option."""
        return value


class Flag(Kind):
    """Set or not."""

    takes = (bool,)
    expected = "true or false"

    def write(self, value: Any) -> str:
        """Return a value as a job file has it."""
        return str(value).lower()


class Choice(Kind):
    """One of some words."""

    def __init__(self, *choices: str) -> None:
        """Take the words."""
        super().__init__("|".join(choices))
        self.choices = choices

    def read(self, value: Any) -> Any:
        """Return the word."""
        if value not in self.choices:
            raise ValueError(f"{value!r} is not one of {', '.join(self.choices)}")
        return value


class Whole(Kind):
    """A whole number in a range."""

    # A plan file has numbers as they were written on the command line.
    takes = (int, str)
    expected = "a whole number"

    def __init__(self, minimum: int, maximum: int | None = None) -> None:
        """Take the range, both ends included."""
        super().__init__("N")
        self.minimum, self.maximum = minimum, maximum

    def read(self, value: Any) -> int:
        """Return the number."""
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a whole number") from None
        if number < self.minimum or (self.maximum is not None and number > self.maximum):
            most = "" if self.maximum is None else f" to {self.maximum}"
            raise ValueError(f"{number} is not in the range from {self.minimum}{most}")
        return number


class PathText(Kind):
    """A path; `only` is the kind that it must have if it exists, for completion in the shell."""

    is_path = True

    def __init__(self, shown: str, only: str = "") -> None:
        """Set the shown text, and `file` or `directory` if only that is allowed."""
        super().__init__(shown)
        self.only = only


class Parsed(Kind):
    """A value that a function makes out of text; whole numbers of a job file are taken as text."""

    def __init__(
        self,
        shown: str,
        parse: Callable[[str], Any],
        *,
        write: Callable[[Any], str] = str,
        minimum: int | None = None,
        numbers: tuple[type, ...] = (),
        pattern: str = "",
    ) -> None:
        """Set both conversions, the least value, the TOML numbers that are taken, and `pattern`."""
        super().__init__(shown)
        self.takes, self.pattern, self.minimum = (str, *numbers), pattern, minimum
        if numbers:
            number = "a number" if float in numbers else "a whole number"
            self.expected = f"{number}, or text in quotes"
        self._parse, self._write = parse, write

    def read(self, value: Any) -> Any:
        """Return the parsed value; a list is read as text with commas, and a tuple is returned."""
        if self.lists and isinstance(value, tuple):
            return value
        if self.lists and isinstance(value, list):
            value = ",".join(map(str, value))
        if isinstance(value, (bool, list, dict)):
            raise ValueError(f"{value!r} is not {self.shown.lower()}")
        parsed = self._parse(str(value))
        if self.minimum is not None and parsed < self.minimum:
            raise ValueError(f"{value} is below {self.minimum:g}")
        return parsed

    def write(self, value: Any) -> str:
        """Return the shortest text that is exact."""
        return self._write(value)


class Numbers(Parsed):
    """`0,2-3`, or a list of numbers in a job file; `all` sets no restriction."""

    lists = True

    def __init__(self) -> None:
        """Set the forms."""
        super().__init__("LIST", self._numbers, numbers=(int,))
        self.expected = "text in quotes, a whole number, or a list of whole numbers"

    def _numbers(self, text: str) -> tuple[int, ...]:
        return () if text.strip().lower() == "all" else settings.parse_numbers(text)


class Several(Parsed):
    """Values of another kind, separated by commas."""

    lists = True

    def __init__(self, of: Kind) -> None:
        """Take the kind of each value."""
        super().__init__(f"{of.shown},...", self._values, write=self._text)
        self.of, self.takes, self.expected = of, of.takes, f"{of.expected}, or a list"

    def _values(self, text: str) -> tuple[Any, ...]:
        """Return the values in the order written, each once."""
        return tuple(dict.fromkeys(self.of.read(item.strip()) for item in text.split(",")))

    def _text(self, value: Any) -> str:
        values = value if isinstance(value, tuple) else (value,)
        return ",".join(map(self.of.write, values))


def _unchecked(item: str) -> None:
    pass


def _one(text: str) -> tuple[str, ...]:
    return (text,)


def _unquoted(text: str) -> tuple[str, ...]:
    """Return the items between commas; one in double quotes is the same as a plain one."""
    return tuple(map(plain_name, settings.split_list(text)))


class Items(Kind):
    """Texts; the option may be repeated. A list of a job file is taken as it is."""

    repeated = True
    expected = "text in quotes, or a list of texts"

    def __init__(
        self,
        shown: str,
        split: Callable[[str], tuple[str, ...]] = settings.split_list,
        check: Callable[[str], Any] = _unchecked,
        *,
        is_path: bool = False,
        parsed: bool = False,
    ) -> None:
        """Set the shown text.

        Args:
            shown: For the help page.
            split: Returns the items of one occurrence.
            check: Reads an item, or raises ValueError.
            is_path: The items are paths.
            parsed: The field in the request has the items as `check` reads them.
        """
        super().__init__(shown)
        self._split, self._check, self.is_path, self._parsed = split, check, is_path, parsed

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the items of one occurrence; a tuple has the items of a list."""
        items = value if isinstance(value, tuple) else self._split(str(value))
        for item in items:
            self._check(item)
        return items

    def field(self, value: Any) -> Any:
        """Return the items, read if the field has them so."""
        return tuple(map(self._check, value)) if self._parsed else value


class Assignments(Items):
    """`NAME=TEXT`; the option may be repeated. In a job file a list, or a table."""

    def __init__(
        self,
        shown: str,
        check: Callable[[str], Any] = settings.parse_assignment,
        split: Callable[[str], tuple[str, ...]] = _one,
        *,
        nested: bool = False,
        number: bool = False,
        quoted: bool = True,
    ) -> None:
        """Set the shown text and the form of an item.

        Args:
            shown: For the help page.
            check: Reads an item, or raises ValueError.
            split: Returns the items of one occurrence.
            nested: A table of a job file may contain tables with the parameters of a method.
            number: The texts are whole numbers from 1.
            quoted: A name of a table is put in double quotes where it is not plain.
        """
        super().__init__(shown, split, check, parsed=number)
        last = "a table of whole numbers" if number else "a table"
        self.expected = f"text in quotes, a list of texts, or {last}"
        self.nested, self.number, self._quoted = nested, number, quoted
        values: Any = int | str | dict[str, int | str] if nested else int | str
        self.takes = (str, dict[str, values])

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the items of one occurrence, each `NAME=TEXT`, quotes of the name kept."""
        if isinstance(value, dict):
            value = tuple(
                f"{_quoted(str(name)) if self._quoted else name}={_method(each)}"
                for name, each in value.items()
            )
        return super().read(value)


def _method(value: Any) -> str:
    """Return the text of a value in a table; of a method, with its parameters."""
    if not isinstance(value, dict):
        return str(value)
    rest = (f"{k}={masks.quoted_value(str(v))}" for k, v in value.items() if k != "method")
    return ",".join((str(value.get("method", "")), *rest))


def plain_name(name: str) -> str:
    """Return a name without its double quotes."""
    quoted = len(name) > 1 and name.startswith('"') and name.endswith('"')
    return name[1:-1].replace('""', '"') if quoted else name


def _quoted(name: str) -> str:
    """Return a name so that it is one item of a list, and quoted only where it has to be."""
    return name if re.fullmatch(r"[^\s,=\"]+", name) else '"' + name.replace('"', '""') + '"'


def _table_name(name: str) -> None:
    if "\0" in name:
        raise ValueError("it holds the character NUL")  # No database takes it.


def _places(text: str) -> tuple[str, ...]:
    # The rules decide the meaning of an empty text.
    return _unquoted(text) if text.strip() else ("",)


def _variable(name: str) -> None:
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        # It is not shown: `NAME=VALUE` may have been meant.
        raise ValueError("an item is not the name of a variable; give names without values")


class Statements(Items):
    """SQL statements; a semicolon at the end, as a shell script has it, is removed."""

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the statement of one occurrence, or the statements of a list."""
        found = super().read(value)
        if not all(statement.strip() for statement in found):
            raise ValueError("a statement is empty")
        return tuple(statement.strip().rstrip(";") for statement in found)


def _parallelism(text: str) -> int:
    if text.strip().lower() == "auto":
        return 0
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or not 1 <= int(text) <= MAX_WORKERS:
        raise ValueError(
            f"{text!r} is neither auto nor a number of workers from 1 to {MAX_WORKERS}"
        )
    return int(text)


def _run_parallelism(text: str) -> int:
    if text.strip().lower() == "adaptive":
        return ADAPTIVE
    try:
        return _parallelism(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither auto, adaptive nor a number of workers from 1 to {MAX_WORKERS}"
        ) from None


def _parallelism_text(value: int) -> str:
    return {0: "auto", ADAPTIVE: "adaptive"}.get(value, str(value))


def _cpu_share(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?)\s*%?", text.strip())
    if match is None or not 1 <= float(match[1]) <= 100:
        raise ValueError(f"{text!r} is not a share from 1% to 100%; write for instance 75%")
    return float(match[1]) / 100


def _cpu_share_or_none(text: str) -> float:
    return 0.0 if text.strip() in ("0", "0%") else _cpu_share(text)


def _share(text: str) -> float:
    found = settings.any_percent(text)
    if not found:
        raise ValueError(f"{text} is not above 0 %")
    return found


def _number(text: str) -> float:
    most = 1e9
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12}", text.strip()):
        raise ValueError(f"{text!r} is not a number above 0; write for instance 165 or 1.35")
    found = float(text)
    if not 0 < found <= most:
        raise ValueError(f"{text!r} is not a number above 0 and up to {most:,.0f}")
    return found


def _hours(text: str) -> str:
    settings.parse_hours(text)
    return text.strip()


def _hours_or_none(text: str) -> str:
    return "never" if text.strip().lower() == "never" else _hours(text)


def _keeping(text: str) -> float:
    seconds = settings.parse_seconds(text)
    if seconds > LONGEST_DAYS * 86_400:
        raise ValueError(f"{text} is more than {LONGEST_DAYS} days, which is too long for a server")
    return seconds


def _compression(text: str) -> Compression | str:

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


def _number_form(text: str) -> str:
    form = text.strip().lower().replace(" ", "")
    if form in ("string", "double"):
        return form
    match = re.fullmatch(r"decimal\((\d+),(\d+)\)", form)
    if match is None:
        raise ValueError(
            f"{text!r} is not a form; write string, double or for instance decimal(38,10)"
        )
    precision, scale = int(match[1]), int(match[2])
    if not 1 <= precision <= MAX_DECIMAL or scale > precision:
        raise ValueError(
            f"{text!r} is not a decimal: give 1 to {MAX_DECIMAL} digits, and a scale of at "
            "most as many"
        )
    return form


def _end_of_line(text: str) -> str:
    return END_OF_LINES.get(text.lower()) or settings.unescape(text)


def _encoding(text: str) -> str:
    try:
        return codecs.lookup(text).name
    except LookupError:
        raise ValueError(f"{text!r} is not a character encoding that Python knows") from None


def _mode(text: str) -> int:
    if not re.fullmatch("0?[0-7]{3}", text.strip()):
        raise ValueError("it is not a file mode; write three octal digits, such as 640")
    mode = int(text, 8)
    if not mode & 0o400:
        raise ValueError(f"{mode:03o} does not let the owner read; write for instance 640")
    return mode


def _owner_group(text: str) -> str:
    user, colon, group = text.strip().partition(":")
    if not re.fullmatch(r"[\w.@$\\-]*", user + group) or not (group if colon else user):
        raise ValueError("it is not USER, :GROUP or USER:GROUP")
    return text.strip()


def general(value: float) -> str:
    """Return a number in its shortest form."""
    return f"{value:g}"


_ANY_NUMBER = (int, float)

FLAG = Flag("")
FILE = PathText("FILE", "file")
SIZE = Parsed(
    "SIZE",
    settings.parse_size,
    write=settings.size_text,
    numbers=(int,),
    pattern=settings.SIZE_PATTERN,
)
SIZE_FROM_1 = Parsed(
    "SIZE",
    settings.parse_size,
    write=settings.size_text,
    minimum=1,
    numbers=(int,),
    pattern=settings.SIZE_PATTERN,
)
COUNT = Parsed(
    "COUNT",
    settings.parse_count,
    write=settings.count_text,
    minimum=1,
    numbers=(int,),
    pattern=settings.COUNT_PATTERN,
)
SECONDS = Parsed(
    "SECONDS",
    settings.parse_seconds,
    write=general,
    numbers=_ANY_NUMBER,
    pattern=settings.SECONDS_PATTERN,
)
KEEPING = Parsed("DURATION", _keeping, write=general, numbers=_ANY_NUMBER)
HOURS = Parsed("HH:MM-HH:MM", _hours, pattern=r"^\s*[0-9]{1,2}:[0-9]{2}-[0-9]{1,2}:[0-9]{2}\s*$")
HOURS_OR_NONE = Parsed("HH:MM-HH:MM|never", _hours_or_none)
CPU_SHARE = Parsed("PERCENT", _cpu_share, write=settings.percent_text, numbers=_ANY_NUMBER)
CPU_SHARE_OR_NONE = Parsed(
    "PERCENT", _cpu_share_or_none, write=settings.percent_text, numbers=_ANY_NUMBER
)
SHARE = Parsed("PERCENT", _share, write=settings.percent_text, numbers=_ANY_NUMBER)
PERCENT = Parsed("PERCENT", settings.any_percent, write=settings.percent_text, numbers=_ANY_NUMBER)
PERCENT_BELOW_100 = Parsed(
    "PERCENT", settings.parse_percent, write=settings.percent_text, numbers=_ANY_NUMBER
)
NUMBER = Parsed("NUMBER", _number, write=general, numbers=_ANY_NUMBER)
PARALLELISM = Parsed("N|auto", _parallelism, write=_parallelism_text, numbers=(int,))
RUN_PARALLELISM = Parsed(
    "N|auto|adaptive",
    _run_parallelism,
    write=_parallelism_text,
    numbers=(int,),
    pattern=r"^\s*(auto|adaptive|[0-9]{1,9})\s*$",
)
LEVELS = Parsed("LEVELS", settings.parse_levels, write=settings.levels_text, numbers=(int,))
PART = Parsed("K/N", settings.parse_part, write=settings.part_text, pattern=settings.PART_PATTERN)
CLUSTER = Parsed("ADDRESS", settings.parse_cluster)
NUMBER_FORM = Parsed("FORM", _number_form)
COMPRESSION = Parsed(
    "CODEC[:LEVEL]", _compression, pattern=rf"^\s*({'|'.join((*CODECS, *PRESETS))})(:-?[0-9]+)?\s*$"
)
TEXT = Parsed("TEXT", settings.unescape)
END_OF_LINE = Parsed("lf|crlf|TEXT", _end_of_line)
ENCODING = Parsed("NAME", _encoding)
MODE = Parsed("OCTAL", _mode, write=lambda value: f"{value:03o}")
OWNER_GROUP = Parsed("[USER][:GROUP]", _owner_group)
NUMBERS = Numbers()
NAMES = Items("NAMES")
GLOBS = Items("GLOBS", _unquoted)
TABLES = Items("T", _one, _table_name)
SCHEMAS = Items("S", _one, _table_name)
ORDER = Items("ORDER", check=settings.parse_order, parsed=True)
PARTITION = Items("FIELD", _one, settings.parse_partition, parsed=True)
PLACES = Items("DEST", _places, is_path=True)
FILES = Items("FILE|DEST", _unquoted)
RECIPIENTS = Items("RECIPIENT", _unquoted)
VARIABLES = Items("NAME", check=_variable)
STATEMENTS = Statements("SQL", _one)
WIDTHS = Assignments("COLUMN=BYTES", settings.parse_width, settings.split_list, number=True)
RENAMES = Assignments("COLUMN=NAME")
CASTS = Assignments("COLUMN=TYPE")
CONSTANTS = Assignments("COLUMN=TEXT")
EXPRESSIONS = Assignments("COLUMN=SQL")
MASKS = Assignments("COLUMN=METHOD[,PARAMETER=VALUE]", masks.parse_mask, nested=True)
KEY_PLACES = Assignments("[NAME=]PLACE", masks.parse_key_place, quoted=False)


class Routes(Items):
    """Routes as they are written on the command line, one in each occurrence of the option."""

    takes = ()
    expected = "entries [[route]]"

    def read(self, value: Any) -> tuple[Any, ...]:
        """Return the given route as a tuple of one."""
        return (value if isinstance(value, tuple) else settings.parse_route(value),)


ROUTES = Routes("NAME:KEY=VALUE,...")
