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
"""Those of `writers.text.dialects`, repeated so that a help page need not import it."""

_text = partial(
    Option,
    section="Delimited text",
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
        help="Named set of the options below; single options override it.",
    ),
    _by_dialect(
        name="delimiter",
        kind=TEXT,
        field=f"{FORMAT}.delimiter",
        not_for={"fixed": "delimiter"},
        help=r"Text between two values. Escapes: \xHH \t \n \r \\.",
    ),
    _by_dialect(
        name="enclosure",
        kind=TEXT,
        field=f"{FORMAT}.enclosure",
        not_for={"fixed": "enclosure"},
        help="One or more characters around a value. Escapes as for --delimiter.",
    ),
    _by_dialect(
        name="enclose",
        kind=Choice("minimal", "strings", "all", "none"),
        field=f"{FORMAT}.enclose",
        not_for={"fixed": "enclosure"},
        help="Values to enclose: where needed, all text and dates, all but NULL, or none.",
    ),
    _by_dialect(
        name="escape",
        kind=Choice("double", "backslash", "none"),
        field=f"{FORMAT}.escape",
        not_for={"fixed": "enclosure"},
        help="How an enclosure inside a value is written; none refuses such a value.",
    ),
    _by_dialect(
        name="null",
        kind=TEXT,
        field=f"{FORMAT}.null",
        help=r"Text of NULL, never enclosed. Escapes as for --delimiter; \N is itself.",
    ),
    _by_dialect(
        name="eol",
        kind=END_OF_LINE,
        field=f"{FORMAT}.eol",
        help="End of a record. Escapes as for --delimiter.",
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
        help="Write a delimiter after the last value, too.",
    ),
    _by_dialect(
        name="record-length",
        kind=Whole(0, 20),
        metavar="DIGITS",
        field=f"{FORMAT}.record_length_digits",
        not_for={"fixed": "length in front of them"},
        help="Write the length of each record in bytes before it, with this many digits. 0 writes"
        " none.",
    ),
)

CHARACTERS = (
    _by_dialect(
        name="encoding",
        kind=ENCODING,
        field=f"{FORMAT}.encoding",
        help="Character encoding of the files, by Python's names.",
    ),
    _text(
        name="substitute",
        kind=TEXT,
        field=f"{FORMAT}.substitute",
        owner=TextFormat,
        default_text="such a value is refused",
        help="Text that replaces each character missing from --encoding. Escapes as for "
        "--delimiter.",
    ),
)

FIXED = (
    _text(
        name="fixed",
        kind=FLAG,
        field="fixed",
        owner=Request,
        shape=_fixed,
        help="Write records of fixed width: each column in its own bytes, padded with blanks.",
    ),
    _text(
        name="width",
        kind=WIDTHS,
        multiple=True,
        field="fixed.given",
        owner=FixedWidths,
        shape=_widths,
        default_text="by the column's type",
        help="With --fixed, the width of a column's field in bytes. Separated by commas, or "
        "repeated; in a job file also a table.",
    ),
)

FORMS = (
    _by_dialect(
        name="date-format",
        kind=Kind("MASK"),
        field=f"{FORMAT}.date_format",
        help="Oracle mask of dates, for instance YYYYMMDDHH24MISS.",
    ),
    _by_dialect(
        name="timestamp-format",
        kind=Kind("MASK"),
        field=f"{FORMAT}.timestamp_format",
        help='Oracle mask of timestamps, for instance YYYY-MM-DD"T"HH24:MI:SS.FF6.',
    ),
    _by_dialect(
        name="timestamp-tz-format",
        kind=Kind("MASK"),
        field=f"{FORMAT}.timestamp_tz_format",
        help="Oracle mask of timestamps with a time zone.",
    ),
    _by_dialect(
        name="decimal-separator",
        kind=Kind("TEXT"),
        field=f"{FORMAT}.decimal_separator",
        help="Character between the integer and the fraction of a number.",
    ),
    _by_dialect(
        name="boolean-format",
        kind=Choice("true/false", "t/f", "1/0"),
        field=f"{FORMAT}.boolean",
        help="The words for true and for false.",
    ),
    _by_dialect(
        name="binary-format",
        kind=Choice("prefixed-hex", "hex", "base64"),
        field=f"{FORMAT}.binary",
        help=r"How bytes are written; prefixed-hex is \x6869.",
    ),
    _text(
        name="guard-formulas",
        kind=FLAG,
        field=f"{FORMAT}.guard_formulas",
        owner=TextFormat,
        help="Put ' in front of texts and column names that a spreadsheet takes for a formula: "
        "those that begin with = + - @, a tab or an end of line. This changes values.",
    ),
    _text(
        name="encoder",
        kind=Choice("auto", "native", "plain"),
        field="output.encoder",
        owner=OutputOptions,
        formats=("csv", "parquet"),
        help="Use the compiled encoder, or the plain one: of text it writes the same bytes, of "
        "Parquet (pyarrow) the same values. auto is the compiled one if it was built; see unloader "
        "formats.",
    ),
)

OPTIONS = (*MARKS, *CHARACTERS, *FIXED, *FORMS)
