"""What the values of options look like; each type takes text and the job file's own values."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from unloader.request import settings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from writers.model import Compression

    ParamType = click.ParamType[Any]
else:
    # Not generic before click 8.4.
    ParamType = click.ParamType

MAX_WORKERS = 65536
"""More than any machine has CPUs (NR_CPUS of Linux is 8,192 at most)."""

MAX_DECIMAL = 38
"""Digits of the widest decimal that every reader of Parquet knows."""

CODECS = ("none", "gzip", "zstd", "lz4", "snappy")
PRESETS = ("fastest", "balanced", "smallest")
"""Those of `writers.codecs.choice`, repeated so that a help page need not import it."""

END_OF_LINES = {"lf": "\n", "crlf": "\r\n"}


class Typed(ParamType):
    """A type of ours; its name is what the help page shows for the value, as it is written."""

    takes: tuple[type, ...] = (str,)
    """Kinds of TOML values that a job file may have for it; of a list, kinds of its items."""
    expected = "text in quotes"
    """The same for the user."""


class Parsed(Typed):
    """A value that a function makes out of text; whole numbers of a job file are taken as text."""

    def __init__(
        self,
        name: str,
        parse: Callable[[str], Any],
        minimum: float | None = None,
        numbers: tuple[type, ...] = (),
    ) -> None:
        self.name = name
        self.takes = (str, *numbers)
        if numbers:
            number = "a number" if float in numbers else "a whole number"
            self.expected = f"{number}, or text in quotes"
        self._parse = parse
        self._minimum = minimum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the parsed value, or fail with the parser's own words."""
        if isinstance(value, (bool, list, dict)):
            self.fail(f"{value!r} is not {self.name.lower()}.", param, ctx)
        try:
            parsed = self._parse(str(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        if self._minimum is not None and parsed < self._minimum:
            self.fail(f"{value} is below {self._minimum:g}.", param, ctx)
        return parsed


class Items(Typed):
    """Comma-separated names; the option may be repeated. A list of a job file is taken as it is."""

    expected = "text in quotes, or a list of texts"

    def __init__(self, name: str, *, keep_quotes: bool) -> None:
        self.name = name
        self._keep_quotes = keep_quotes

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the items of one occurrence."""
        if isinstance(value, tuple):
            return value
        try:
            items = settings.split_list(str(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        return items if self._keep_quotes else tuple(map(_unquoted, items))

    def split_envvar_value(self, rv: str) -> list[str]:
        """Return the variable's text as one occurrence: blanks do not separate names."""
        return [rv]


class Places(Items):
    """Destinations; an empty text is left to the rules, which know what it means."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Let the shell offer directories."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="dir")]

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the items of one occurrence."""
        if not isinstance(value, tuple) and not str(value).strip():
            return ("",)
        return super().convert(value, param, ctx)


class Widths(Typed):
    """Columns and bytes; the option may be repeated. A table of a job file is taken as it is."""

    name = "COLUMN=BYTES"
    takes = (str, dict)
    expected = "text in quotes, a list of texts, or a table of whole numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the items of one occurrence, each `COLUMN=BYTES`, quotes kept."""
        if isinstance(value, tuple):
            items = value
        elif isinstance(value, dict):
            items = tuple(f"{_quoted(str(name))}={width}" for name, width in value.items())
        else:
            try:
                items = settings.split_list(str(value))
            except ValueError as error:
                self.fail(f"{error}.", param, ctx)
        for item in items:
            try:
                settings.parse_width(item)
            except ValueError as error:
                self.fail(f"{error}.", param, ctx)
        return items

    def split_envvar_value(self, rv: str) -> list[str]:
        """Return the variable's text as one occurrence: blanks do not separate names."""
        return [rv]


class Order(Items):
    """Columns with their direction; the option may be repeated."""

    def __init__(self) -> None:
        super().__init__("ORDER", keep_quotes=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the items of one occurrence, each `COLUMN [desc] [nulls first|last]`."""
        items = super().convert(value, param, ctx)
        for item in items:
            try:
                settings.parse_order(item)
            except ValueError as error:
                self.fail(f"{error}.", param, ctx)
        return items


class Statements(Typed):
    """One SQL statement; the option may be repeated. A list of a job file is taken as it is."""

    name = "SQL"
    expected = "text in quotes, or a list of texts"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the statement as the only item, without the semicolon that a shell script ends."""
        given = value if isinstance(value, tuple) else (str(value),)
        if not all(statement.strip() for statement in given):
            self.fail("a statement is empty.", param, ctx)
        return tuple(statement.strip().rstrip(";") for statement in given)

    def split_envvar_value(self, rv: str) -> list[str]:
        """Return the variable's text as one statement."""
        return [rv]


class NumberList(Typed):
    """`0,2-3`, or a list of numbers in a job file; `all` is no restriction."""

    name = "LIST"
    takes = (str, int)
    expected = "text in quotes, a whole number, or a list of whole numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers in ascending order; none for `all`."""
        if isinstance(value, tuple):
            return value
        if isinstance(value, str) and value.strip().lower() == "all":
            return ()
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        try:
            return settings.parse_numbers(text)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


def _unquoted(item: str) -> str:
    quoted = len(item) > 1 and item.startswith('"') and item.endswith('"')
    return item[1:-1].replace('""', '"') if quoted else item


def _quoted(name: str) -> str:
    """Return a name so that it is one item of a list, and quoted only where it has to be."""
    if re.fullmatch(r"[^\s,=\"]+", name):
        return name
    return '"' + name.replace('"', '""') + '"'


def _parallelism(text: str) -> int:
    if text.strip().lower() == "auto":
        return 0
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or not 1 <= int(text) <= MAX_WORKERS:
        raise ValueError(
            f"{text!r} is neither auto nor a number of workers from 1 to {MAX_WORKERS}"
        )
    return int(text)


def _compression(text: str) -> Compression | str:
    from writers.model import Compression

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
        raise ValueError(f"{text!r} is no decimal: 1 to {MAX_DECIMAL} digits, the scale among them")
    return form


def _end_of_line(text: str) -> str:
    return END_OF_LINES.get(text.lower()) or settings.unescape(text)


def _encoding(text: str) -> str:
    try:
        return codecs.lookup(text).name
    except LookupError:
        raise ValueError(f"{text!r} is not a character encoding that Python knows") from None


SIZE = Parsed("SIZE", settings.parse_size, numbers=(int,))
SIZE_FROM_1 = Parsed("SIZE", settings.parse_size, minimum=1, numbers=(int,))
COUNT = Parsed("COUNT", settings.parse_count, minimum=1, numbers=(int,))
SECONDS = Parsed("SECONDS", settings.parse_seconds, numbers=(int, float))
TEXT = Parsed("TEXT", settings.unescape)
END_OF_LINE = Parsed("lf|crlf|TEXT", _end_of_line)
ENCODING = Parsed("NAME", _encoding)
PARALLELISM = Parsed("N|auto", _parallelism, numbers=(int,))
COMPRESSION = Parsed("CODEC[:LEVEL]|PRESET", _compression)
NAMES = Items("NAMES", keep_quotes=True)
ORDER = Order()
GLOBS = Items("GLOBS", keep_quotes=False)
PLACES = Places("DEST", keep_quotes=False)
NUMBERS = NumberList()
STATEMENTS = Statements()
WIDTHS = Widths()
NUMBER_FORM = Parsed("FORM", _number_form)
