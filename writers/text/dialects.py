"""The named dialects of delimited text, and the rules a dialect must keep to be readable.

Every check here answers one question: can a reader that knows the format tell each value, each
NULL and each end of a record apart? Nothing here looks at a value.

From UTF-8 records to the bytes of the output encoding, never replacing a character.

An encoding qualifies when it can be written piece by piece: ASCII text must have a fixed width and
no state. A character that it cannot hold, or would read back as another one (Shift JIS has a few),
is refused.
"""

from __future__ import annotations

import codecs
from functools import lru_cache
from itertools import combinations

from writers.errors import FormatError
from writers.model import TextFormat
from writers.text.masks import parse

DIALECTS: dict[str, TextFormat] = {
    # RFC 4180 asks for CR LF. The tools around a Unix pipe expect LF, and every reader of the RFC's
    # format takes it.
    "rfc4180": TextFormat(),
    # PostgreSQL's COPY text format and the defaults of MySQL's LOAD DATA, plus a header.
    "tsv": TextFormat(delimiter="\t", enclosure="", enclose="none", escape="backslash", null=r"\N"),
    "excel": TextFormat(eol="\r\n", encoding="utf-8-sig"),
    # LOAD DATA ... FIELDS TERMINATED BY ',' ENCLOSED BY '"' ESCAPED BY '\\'
    # LINES TERMINATED BY '\n'
    # BOOLEAN is a name of TINYINT there, so a boolean is a number.
    # A binary column takes UNHEX(@b) of bare digits; it would store '\x00ff' as six characters.
    "mysql": TextFormat(
        enclose="strings",
        escape="backslash",
        null=r"\N",
        header=False,
        boolean="1/0",
        binary="hex",
        # MariaDB takes no offset, and neither does MySQL before 8.0.19.
        utc=True,
    ),
    # COPY ... FROM ... WITH (FORMAT csv). No text of PostgreSQL holds U+0000, and psql stops there.
    "postgres": TextFormat(header=False, refused="\0"),
    # SQL*Loader, infile "var 10", FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '~~'.
    # Without a length before each record it is infile "str ...", which knows no enclosures.
    "sqlldr-var": TextFormat(
        enclosure="~~",
        enclose="strings",
        eol="\r\n",
        header=False,
        trailing_delimiter=True,
        record_length_digits=10,
        date_format="YYYYMMDDHH24MISS",
        timestamp_format="YYYYMMDDHH24MISS",
        timestamp_tz_format="YYYYMMDDHH24MISSTZH:TZM",
        # The masks are the dialect's choice, not the user's: they may not cost a digit.
        fractions="keep",
        eol_ends_always=True,
    ),
}


def dialect(name: str) -> TextFormat:
    try:
        return DIALECTS[name]
    except KeyError:
        known = ", ".join(sorted(DIALECTS))
        raise FormatError(f"unknown dialect {name!r}.", f"use one of {known}.") from None


def check(format: TextFormat) -> None:
    """Refuse options that contradict each other, an unknown mask, and an unknown encoding."""
    if format in DIALECTS.values():
        return  # The rules below are for changes of a dialect.
    if format.fixed:
        check_fixed(format)
        _check_layout(format)
        return
    if not format.delimiter:
        raise FormatError("the delimiter is empty.", "give one to --delimiter.")
    if not format.eol:
        raise FormatError("the end of line is empty.", "give --eol lf, crlf or a text.")
    if not format.enclosure and format.enclose != "none":
        raise FormatError(
            f"values cannot be enclosed ({format.enclose}) with an empty enclosure.",
            "give one to --enclosure, or --enclose none.",
        )
    marks = {"--delimiter": format.delimiter, "--eol": format.eol}
    if format.enclosure:
        marks["--enclosure"] = format.enclosure
    # One shared character is enough for a field end and a record end to run into each other.
    for (option, text), (other_option, other) in combinations(marks.items(), 2):
        if shared := set(text) & set(other):
            raise FormatError(
                f"{option} {text!r} and {other_option} {other!r} share {min(shared)!r}, so a "
                "reader could confuse them.",
                f"change {option}.",
            )
    backslash = format.escape == "backslash"
    if not backslash and format.enclose == "none" and format.decimal_separator in format.delimiter:
        raise FormatError(
            f"numbers with the decimal separator {format.decimal_separator!r} would hold the "
            f"delimiter {format.delimiter!r} and cannot be enclosed.",
            "use --enclose minimal, or another --delimiter.",
        )
    for option, text in marks.items() if backslash else ():
        if "\\" in text:
            raise FormatError(
                f"{option} {text!r} holds the escape character itself.",
                f"use --escape double, or another {option}.",
            )
        if text[0].isalnum():
            raise FormatError(
                f"{option} {text!r} begins with a letter or digit, whose meaning a preceding "
                "backslash would change.",
                f"use --escape double, or another {option}.",
            )
    null = f"--null {format.null!r}"
    if (format.null + format.delimiter).find(format.delimiter) != len(format.null):
        raise FormatError(f"the end of {null} runs into the delimiter.", "give another --null.")
    if set(format.null) & (set(format.eol) | {"\r", "\n"}):
        raise FormatError(f"{null} holds an end of line.", "give another --null.")
    backslashes = len(format.null) - len(format.null.rstrip("\\"))
    if format.escape == "backslash" and backslashes % 2:
        raise FormatError(
            f"{null} ends with the escape character, so a reader would take the next mark for "
            "text.",
            "give another --null.",
        )
    if format.enclosure and format.enclosure in format.null:
        raise FormatError(
            f"{null} holds the enclosure, so NULL would read as a value.", "give another --null."
        )
    if not 0 <= format.record_length_digits <= 20:
        raise FormatError(
            f"a record length of {format.record_length_digits} digits is impossible.",
            "give --record-length 1 to 20, or 0 for none.",
        )
    _check_texts(format, {**marks, "--null": format.null})


def check_fixed(format: TextFormat) -> None:
    """Make sure of the same for records of fixed width, whose fields need not be known yet."""
    if format.header or format.trailing_delimiter or format.record_length_digits:
        raise FormatError(
            "records of fixed width have no header, no delimiter and no record length.",
            "use --no-header, --no-trailing-delimiter and --record-length 0.",
        )
    option = f"--null {format.null!r}"
    if format.null != format.null.strip():
        raise FormatError(
            f"{option} begins or ends in a blank, and fields are padded with blanks.",
            "give another --null.",
        )
    if {"\r", "\n"} & set(format.null):
        raise FormatError(f"{option} holds an end of line.", "give another --null.")
    _check_texts(format, {"--eol": format.eol, "--null": format.null})


def _check_layout(format: TextFormat) -> None:
    blank_bytes = len(OutputEncoding(format.encoding).encode(" "))
    start = 0
    for number, field in enumerate(format.fixed, 1):
        if field.width < 1 or field.width % blank_bytes:
            raise FormatError(
                f"field {number} has a width of {field.width} bytes, which blanks cannot fill: a "
                f"blank has {blank_bytes} in {format.encoding}.",
                "give --width a multiple of that number.",
            )
        if field.start != start:
            raise FormatError(
                f"field {number} starts at byte {field.start} of the record, but the field "
                f"before it ends at {start}.",
                "leave no gap and no overlap.",
            )
        start += field.width


def _check_texts(format: TextFormat, marks: dict[str, str]) -> None:
    if len(format.decimal_separator) != 1 or format.decimal_separator in "0123456789+-eE\r\n":
        raise FormatError(
            f"{format.decimal_separator!r} cannot separate decimals.",
            "give one character, such as . or ,, to --decimal-separator.",
        )
    for mask in (format.date_format, format.timestamp_format, format.timestamp_tz_format):
        if mask is not None:
            parse(mask)
    encoding = OutputEncoding(format.encoding)
    for option, text in marks.items():
        encoding.check_text(text, option)
    encoding.check_text(format.decimal_separator, "--decimal-separator")
    encoding.check_text(format.substitute or "", "--substitute")


_BYTE_ORDER_MARKS = {
    "utf-8-sig": ("utf-8", codecs.BOM_UTF8),
    "utf-16": ("utf-16-le", codecs.BOM_UTF16_LE),
    "utf-32": ("utf-32-le", codecs.BOM_UTF32_LE),
}
"""Codecs that put a mark before their first output, and the codec to use after the mark."""
_LOSSY = {"raw-unicode-escape", "unicode-escape", "utf-7", "punycode", "idna", "undefined"}
_ASCII = "".join(map(chr, range(128)))


class OutputEncoding:
    """An encoding by its Python name; one that cannot encode text piece by piece is refused."""

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            canonical = codecs.lookup(name).name
            "".encode(name)
        except LookupError:
            raise FormatError(
                f"unknown encoding {name!r}.",
                "give --encoding a name such as utf-8, latin-1, cp932 or utf-16-le.",
            ) from None
        except UnicodeError:
            raise _unfit(name) from None
        self.codec, self.preamble = _BYTE_ORDER_MARKS.get(canonical, (canonical, b""))
        """`preamble` is the byte order mark at the start of each file, or nothing."""
        if canonical.replace("_", "-") in _LOSSY or not _is_piecewise(self.codec):
            raise _unfit(name)

    @property
    def is_utf8(self) -> bool:
        return self.codec == "utf-8"

    @property
    def holds_all(self) -> bool:
        """Whether every character of Unicode can be written."""
        return self.codec.startswith("utf-")

    def encode(self, text: str) -> bytes:
        """Return the text without a byte order mark, or raise UnicodeEncodeError."""
        return text.encode(self.codec)

    def reads_back(self, text: str, encoded: bytes) -> bool:
        return encoded.decode(self.codec, "replace") == text

    def check_text(self, text: str, option: str) -> None:
        """Make sure that the text of an option can be written."""
        for character in text:
            if not self.holds(character):
                raise FormatError(
                    f"{option} {text!r} holds U+{ord(character):04X}, which {self.name} cannot "
                    f"write.",
                    f"change {option}, or use --encoding utf-8.",
                )

    def holds(self, character: str) -> bool:
        """Return whether a character can be written, and is read back unchanged."""
        try:
            return self.reads_back(character, self.encode(character))
        except UnicodeEncodeError:
            return False


def _unfit(name: str) -> FormatError:
    return FormatError(
        f"{name!r} is not a character set that records can be written in.",
        "give --encoding a name such as utf-8, latin-1, cp932 or utf-16-le.",
    )


@lru_cache(maxsize=32)
def _is_piecewise(codec: str) -> bool:
    try:
        pieces = [character.encode(codec) for character in _ASCII]
        whole = _ASCII.encode(codec)
        return (
            whole == b"".join(pieces)
            and len({len(piece) for piece in pieces}) == 1
            and whole.decode(codec) == _ASCII
        )
    except UnicodeError:
        return False
