"""Kinds of values that options take: each reads text and the values of a job file.

What cannot be understood is a `ValueError` whose message is fit for the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from unloader.request import masks, parts, settings


class Kind:
    """A kind of value; this one is plain text."""

    takes: tuple[type, ...] = (str,)
    """Kinds of TOML values that a job file may have for it; of a list, kinds of its items."""
    expected = "text in quotes"
    """The kinds of `takes` in words, for the user."""
    lists = False
    """A job file may have a list for it, although the option is not repeated."""
    is_path = False
    """`~/` in it is the home directory, where no shell has seen it."""
    pattern = ""
    """Regular expression of the texts that mean something, words in lower case; for editors. Empty
    where any text may."""

    def __init__(self, shown: str) -> None:
        """Set the text for the value on the help page."""
        self.shown = shown

    def read(self, value: Any) -> Any:
        """Return what text, or a value of a job file, means.

        Raises:
            ValueError: It means nothing.
        """
        return value

    def write(self, value: Any) -> str:
        """Return a value as a user would write it."""
        return str(value)


class Flag(Kind):
    """Set or not."""

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


class Whole(Kind):
    """A whole number in a range."""

    # A plan file has numbers as they were written on the command line.
    takes = (int, str)
    expected = "a whole number"

    def __init__(self, minimum: int, maximum: int | None = None) -> None:
        """Take the range, both ends included."""
        super().__init__("N")
        self.minimum, self.maximum = minimum, maximum


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
        """Return the parsed value."""
        if isinstance(value, (bool, list, dict)):
            raise ValueError(f"{value!r} is not {self.shown.lower()}")
        parsed = self._parse(str(value))
        if self.minimum is not None and parsed < self.minimum:
            raise ValueError(f"{value} is below {self.minimum:g}")
        return parsed

    def write(self, value: Any) -> str:
        """Return the shortest text that is exact."""
        return self._write(value)


class Items(Kind):
    """Comma-separated names; the option may be repeated. A list of a job file is taken as it is."""

    expected = "text in quotes, or a list of texts"

    def __init__(self, shown: str, *, keep_quotes: bool) -> None:
        """Set the shown text, and whether a name in double quotes differs from a plain name."""
        super().__init__(shown)
        self._keep_quotes = keep_quotes

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the items of one occurrence."""
        if isinstance(value, tuple):
            return value
        items = settings.split_list(str(value))
        return items if self._keep_quotes else tuple(map(_unquoted, items))


class TableNames(Kind):
    """A table or a pattern of tables; the option may be repeated.

    A comma belongs to the name. A list of a job file is taken as it is.
    """

    expected = "text in quotes, or a list of texts"

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the name as the only item."""
        names = value if isinstance(value, tuple) else (str(value),)
        if any("\0" in each for each in names):
            # No database takes it.
            raise ValueError("it holds the character NUL")
        return names


class Places(Items):
    """Destinations; the rules decide the meaning of an empty text."""

    is_path = True

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the items of one occurrence."""
        if not isinstance(value, tuple) and not str(value).strip():
            return ("",)
        return super().read(value)


class Widths(Kind):
    """Columns and bytes; the option may be repeated. A table of a job file is taken as it is."""

    takes = (str, dict)
    expected = "text in quotes, a list of texts, or a table of whole numbers"

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the items of one occurrence, each `COLUMN=BYTES`, quotes kept."""
        if isinstance(value, tuple):
            items = value
        elif isinstance(value, dict):
            items = tuple(f"{_quoted(str(name))}={width}" for name, width in value.items())
        else:
            items = settings.split_list(str(value))
        for item in items:
            settings.parse_width(item)
        return items


class Variables(Items):
    """Names of variables of the environment; the option may be repeated."""

    def __init__(self) -> None:
        """Show that a name is expected."""
        super().__init__("NAME", keep_quotes=True)

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the names of one occurrence."""
        names = super().read(value)
        if not all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) for name in names):
            # It is not shown: `NAME=VALUE` may have been meant.
            raise ValueError("an item is not the name of a variable; give names without values")
        return names


class Order(Items):
    """Columns with their direction; the option may be repeated."""

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the items of one occurrence, each `COLUMN [desc] [nulls first|last]`."""
        items = super().read(value)
        for item in items:
            settings.parse_order(item)
        return items


class Partitions(Kind):
    """A partition field; the option may be repeated. A list of a job file is taken as it is."""

    expected = "text in quotes, or a list of texts"

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the field as the only item: a comma may belong to it."""
        items = value if isinstance(value, tuple) else (str(value),)
        for item in items:
            settings.parse_partition(item)
        return items


class Statements(Kind):
    """One SQL statement; the option may be repeated. A list of a job file is taken as it is."""

    expected = "text in quotes, or a list of texts"

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the statement as the only item, without the semicolon that a shell script ends."""
        given = value if isinstance(value, tuple) else (str(value),)
        if not all(statement.strip() for statement in given):
            raise ValueError("a statement is empty")
        return tuple(statement.strip().rstrip(";") for statement in given)


class Assignments(Kind):
    """`NAME=TEXT`, one of them; the option may be repeated. In a job file a list, or a table."""

    takes = (str, dict)
    expected = "text in quotes, a list of texts, or a table"
    nested = False
    """A table of a job file may contain tables with parameters."""

    def __init__(self, shown: str, check: Callable[[str], Any] = settings.parse_assignment) -> None:
        """Set the shown text, and the function that reads an item or raises ValueError."""
        super().__init__(shown)
        self._check = check

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the items of one occurrence, each `NAME=TEXT`, quotes of the name kept."""
        if isinstance(value, dict):
            value = tuple(self.item_of(str(name), of) for name, of in value.items())
        items = value if isinstance(value, tuple) else (str(value),)
        for item in items:
            self._check(item)
        return items

    def item_of(self, name: str, value: Any) -> str:
        """Return what a name and its value in a table of a job file are as one item."""
        return f"{_quoted(name)}={self.text_of(value)}"

    def text_of(self, value: Any) -> str:
        """Return the text of a value in a table of a job file."""
        return str(value)


class Masks(Assignments):
    """`COLUMN=METHOD,PARAMETER=VALUE,...`; a table of a job file has the parameters in tables."""

    nested = True

    def __init__(self, shown: str) -> None:
        """Set the shown text."""
        super().__init__(shown, masks.parse_mask)

    def text_of(self, value: Any) -> str:
        """Return a method with its parameters as the command line has them."""
        if not isinstance(value, dict):
            return str(value)
        method = str(value.get("method", ""))
        rest = (
            f"{name}={masks.quoted_value(str(each))}"
            for name, each in value.items()
            if name != "method"
        )
        return ",".join((method, *rest))


class KeyPlaces(Assignments):
    """`PLACE` or `NAME=PLACE` of a key, which is not shown: it may be the key itself."""

    def __init__(self, shown: str) -> None:
        """Set the shown text."""
        super().__init__(shown, masks.parse_key_place)

    def item_of(self, name: str, value: Any) -> str:
        """Return a named place; the name needs no quotes."""
        return f"{name}={value}"


class NumberList(Kind):
    """`0,2-3`, or a list of numbers in a job file; `all` sets no restriction."""

    takes = (str, int)
    expected = "text in quotes, a whole number, or a list of whole numbers"
    lists = True

    def read(self, value: Any) -> tuple[int, ...]:
        """Return the numbers in ascending order; none for `all`."""
        if isinstance(value, tuple):
            return value
        if isinstance(value, str) and value.strip().lower() == "all":
            return ()
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        return settings.parse_numbers(text)


def _unquoted(item: str) -> str:
    quoted = len(item) > 1 and item.startswith('"') and item.endswith('"')
    return item[1:-1].replace('""', '"') if quoted else item


def _quoted(name: str) -> str:
    """Return a name so that it is one item of a list, and quoted only where it has to be."""
    if re.fullmatch(r"[^\s,=\"]+", name):
        return name
    return '"' + name.replace('"', '""') + '"'


FLAG = Flag("")
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
    write=lambda value: f"{value:g}",
    numbers=(int, float),
    pattern=settings.SECONDS_PATTERN,
)
TEXT = Parsed("TEXT", settings.unescape)
NAMES = Items("NAMES", keep_quotes=True)
GLOBS = Items("GLOBS", keep_quotes=False)
TABLES = TableNames("T")
SCHEMAS = TableNames("S")
ORDER = Order("ORDER", keep_quotes=True)
PARTITION = Partitions("FIELD")
PLACES = Places("DEST", keep_quotes=False)
RECIPIENTS = Items("RECIPIENT", keep_quotes=False)
WIDTHS = Widths("COLUMN=BYTES")
STATEMENTS = Statements("SQL")
RENAMES = Assignments("COLUMN=NAME")
CASTS = Assignments("COLUMN=TYPE")
CONSTANTS = Assignments("COLUMN=TEXT")
EXPRESSIONS = Assignments("COLUMN=SQL")
MASKS = Masks("COLUMN=METHOD[,PARAMETER=VALUE]")
KEY_PLACES = KeyPlaces("[NAME=]PLACE")
NUMBERS = NumberList("LIST")
PART = Parsed("K/N", parts.parse_part, write=parts.part_text, pattern=parts.PART_PATTERN)
