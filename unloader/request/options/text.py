"""Options of delimited text and of records of fixed width."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from unloader.model import FixedWidths, OutputOptions, Request
from unloader.request.options.kinds import FLAG, TEXT, WIDTHS, Choice, Kind, Whole
from unloader.request.options.option import READING, Option
from unloader.request.options.output import FORMAT
from unloader.request.options.parsing import ENCODING, END_OF_LINE
from unloader.request.settings import parse_width
from writers.model import TextFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

DIALECTS = ("rfc4180", "tsv", "excel", "mysql", "postgres", "sqlldr-var")
"""The dialects of `writers.text.dialects`, repeated so that a help page need not import it."""

_text = partial(
    Option,
    section="CSV",
    commands=READING,
    effect="changes",
    scope="route",
    formats=("csv",),
)
_by_dialect = partial(_text, owner=TextFormat, default_text="by dialect")


def _dialect(name: str) -> TextFormat:
    from writers.text.dialects import dialect

    return dialect(name)


def _fixed(wanted: bool) -> FixedWidths | None:
    return FixedWidths() if wanted else None


def _widths(items: Sequence[str]) -> tuple[tuple[str, int], ...]:
    return tuple(map(parse_width, items))


MARKS = (
    _text(
        name="dialect",
        kind=Choice(*DIALECTS),
        field=FORMAT,
        shape=_dialect,
        default=DIALECTS[0],
        help="Named set of the options below. Single options override it.",
        example="sqlldr-var",
    ),
    _by_dialect(
        name="delimiter",
        kind=TEXT,
        field=f"{FORMAT}.delimiter",
        not_for={"fixed": "delimiter"},
        help=r"Text between two values. Escapes: \xHH \t \n \r \\.",
        example="';'",
    ),
    _by_dialect(
        name="enclosure",
        kind=TEXT,
        field=f"{FORMAT}.enclosure",
        not_for={"fixed": "enclosure"},
        help="One or more characters around a value. Escapes as for --delimiter.",
        example='"\'"',
    ),
    _by_dialect(
        name="enclose",
        kind=Choice("minimal", "strings", "all", "none"),
        field=f"{FORMAT}.enclose",
        not_for={"fixed": "enclosure"},
        help="Values to enclose: where needed, all text and dates, all except NULL, or none.",
        example="strings",
    ),
    _by_dialect(
        name="escape",
        kind=Choice("double", "backslash", "none"),
        field=f"{FORMAT}.escape",
        not_for={"fixed": "enclosure"},
        help="How an enclosure inside a value is written. none refuses such a value.",
        example="backslash",
    ),
    _by_dialect(
        name="null",
        kind=TEXT,
        field=f"{FORMAT}.null",
        help=r"Text for NULL, never enclosed. Escapes as for --delimiter. \N is kept as it is.",
        example="'\\N'",
    ),
    _by_dialect(
        name="eol",
        kind=END_OF_LINE,
        field=f"{FORMAT}.eol",
        help="End of a record. Escapes as for --delimiter.",
        example="crlf",
    ),
    _by_dialect(
        name="header",
        kind=FLAG,
        opposite=True,
        field=f"{FORMAT}.header",
        not_for={"fixed": "header"},
        help="Write the column names as the first record of each file.",
    ),
    _by_dialect(
        name="trailing-delimiter",
        kind=FLAG,
        opposite=True,
        field=f"{FORMAT}.trailing_delimiter",
        not_for={"fixed": "delimiter"},
        help="Also write a delimiter after the last value.",
    ),
    _by_dialect(
        name="record-length",
        kind=Whole(0, 20),
        metavar="DIGITS",
        field=f"{FORMAT}.record_length_digits",
        not_for={"fixed": "length before them"},
        help=(
            "Write the length of each record in bytes before the record, with this many digits. 0 "
            "writes no length."
        ),
        example="5",
    ),
)

CHARACTERS = (
    _by_dialect(
        name="encoding",
        kind=ENCODING,
        field=f"{FORMAT}.encoding",
        help="Character encoding of the files, by the names of Python.",
        example="iso-8859-1",
    ),
    _text(
        name="substitute",
        kind=TEXT,
        field=f"{FORMAT}.substitute",
        owner=TextFormat,
        default_text="the value is refused",
        help=(
            "Text that replaces each character that --encoding does not have. Escapes as for "
            "--delimiter."
        ),
        example="'?' --encoding iso-8859-1",
    ),
)

FIXED = (
    _text(
        name="fixed",
        kind=FLAG,
        field="fixed",
        owner=Request,
        shape=_fixed,
        help=(
            "Write records of fixed width. Each column has a fixed number of bytes, padded with "
            "blanks."
        ),
    ),
    _text(
        name="width",
        kind=WIDTHS,
        multiple=True,
        field="fixed.given",
        owner=FixedWidths,
        shape=_widths,
        default_text="by the column's type",
        help=(
            "With --fixed: width of the field of a column in bytes. In a job file it can also be a "
            "table. Separate several with commas, or repeat the option."
        ),
        example="NAME=40 --fixed",
    ),
)

FORMS = (
    _by_dialect(
        name="date-format",
        kind=Kind("FORMAT"),
        field=f"{FORMAT}.date_format",
        help="Format of dates, as in TO_CHAR of Oracle, such as YYYYMMDDHH24MISS.",
        example="YYYYMMDDHH24MISS",
    ),
    _by_dialect(
        name="timestamp-format",
        kind=Kind("FORMAT"),
        field=f"{FORMAT}.timestamp_format",
        help='Format of timestamps, such as YYYY-MM-DD"T"HH24:MI:SS.FF6.',
        example="'YYYY-MM-DD HH24:MI:SS.FF6'",
    ),
    _by_dialect(
        name="timestamp-tz-format",
        kind=Kind("FORMAT"),
        field=f"{FORMAT}.timestamp_tz_format",
        help="Format of timestamps with a time zone, such as YYYY-MM-DD HH24:MI:SS TZH:TZM.",
        example="'YYYY-MM-DD HH24:MI:SS.FF6 TZH:TZM'",
    ),
    _by_dialect(
        name="decimal-separator",
        kind=Kind("TEXT"),
        field=f"{FORMAT}.decimal_separator",
        help="Character between the integer and the fraction of a number.",
        example="',' --delimiter ';'",
    ),
    _by_dialect(
        name="boolean-format",
        kind=Choice("true/false", "t/f", "1/0"),
        field=f"{FORMAT}.boolean",
        help="Words for true and false.",
        example="1/0",
    ),
    _by_dialect(
        name="binary-format",
        kind=Choice("prefixed-hex", "hex", "base64"),
        field=f"{FORMAT}.binary",
        help=r"Form of binary values. prefixed-hex is \x6869.",
        example="base64",
    ),
    _text(
        name="guard-formulas",
        kind=FLAG,
        field=f"{FORMAT}.guard_formulas",
        owner=TextFormat,
        help=(
            "Put ' before texts and column names that a spreadsheet takes for a formula. They "
            "begin with = + - @, a tab or an end of line. This changes values."
        ),
    ),
    _text(
        name="encoder",
        kind=Choice("auto", "native", "plain"),
        field="output.encoder",
        owner=OutputOptions,
        formats=("csv", "parquet"),
        help=(
            "Use the compiled encoder (native), or the slower one (plain). Both write the same "
            "text, and in Parquet the same values. auto is the compiled encoder if it was built; "
            "see unloader formats."
        ),
        example="plain",
    ),
)

OPTIONS = (*MARKS, *CHARACTERS, *FIXED, *FORMS)
