"""The SQL by which Oracle computes checksums of columns, see `unloader.sources.hashing`.

STANDARD_HASH takes no LOB and no LONG, and it hashes bytes of the database's character set: text is
compared where that is AL32UTF8. It may give NULL a hash, so NULLs are left out by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from unloader.model import Extract, SourceSpec
from unloader.sources.hashing import HashedColumn, Hashing, SqlHasher
from unloader.sources.oracle.columns.native import parse_native
from unloader.sources.oracle.columns.types import form_of, fraction_digits, moment_text, number_text
from unloader.sources.oracle.connection.session import Session
from unloader.sources.oracle.reading.units import selector_statement

_INTEGER = re.compile(r"int\d+")
_REALS = {"BINARY_FLOAT": "float", "BINARY_DOUBLE": "double"}
_NATIONAL = ("NCHAR", "NVARCHAR2")
_CHARACTER_SET = "SELECT VALUE FROM NLS_DATABASE_PARAMETERS WHERE PARAMETER = 'NLS_CHARACTERSET'"
_UTF_8 = "AL32UTF8"


def _text(column: HashedColumn) -> str | None:
    kind, value = column.kind, column.expression
    native = parse_native(column.read.source_type)
    if kind == "string":
        return _string(column)
    if _INTEGER.fullmatch(kind) or kind.startswith("decimal128"):
        return plain_digits(number_text(value))
    if kind in ("float", "double"):
        return _real(value, native.name) if _REALS.get(native.name) == kind else None
    if kind.startswith("timestamp["):
        text = moment_text(column.read)
        return _moment(value, text, fraction_digits(native), utc="tz=" in kind)
    if kind == "binary":
        return value if native.name == "RAW" else None
    if kind == "bool":
        return f"CASE WHEN {value} THEN 'true' WHEN NOT {value} THEN 'false' END"
    return None


def _string(column: HashedColumn) -> str | None:
    form, value = form_of(column.read), column.expression
    native = parse_native(column.read.source_type)
    if form == "number":
        return plain_digits(value)
    if column.text_class == "timestamp" and form in ("moment", "utc"):
        return _moment(value, value, fraction_digits(native), utc=form == "utc")
    if form == "plain" and native.name != "LONG":
        return f"TO_CHAR({value})" if native.name in _NATIONAL else value
    return None


def plain_digits(text: str) -> str:
    """Return SQL for a number of TM9 with its zero before the point."""
    return f"SUBSTR(REPLACE(REPLACE('x' || {text}, 'x.', 'x0.'), 'x-.', 'x-0.'), 2)"


def _real(value: str, native: str) -> str:
    bits = f"LOWER(RAWTOHEX(UTL_RAW.CAST_FROM_{native}({value})))"
    not_numbers = ("7fc00000", "ffc00000", "7ff8000000000000", "fff8000000000000")
    pairs = ", ".join(f"'{each}', 'NaN'" for each in not_numbers)
    return f"DECODE({bits}, {pairs}, {bits})"


def _moment(value: str, text: str, digits: int, *, utc: bool) -> str:
    """Return SQL for a date and time, the era behind it, without zeros at the fraction's end."""
    if digits:
        text = f"RTRIM(RTRIM({text}, '0'), '.')"
    zone = "+00:00" if utc else ""
    return (
        f"CASE WHEN {value} IS NULL THEN NULL "
        f"WHEN SUBSTR({text}, 1, 1) = '-' THEN SUBSTR({text}, 2) || '{zone} BC' "
        f"ELSE LTRIM({text}) || '{zone}' END"
    )


HASHING = Hashing(
    text=_text,
    sum=(
        "SUM(CASE WHEN {0} IS NOT NULL THEN TO_NUMBER(SUBSTR(RAWTOHEX(STANDARD_HASH({0}, 'MD5')), "
        "1, 16), 'XXXXXXXXXXXXXXXX') END)"
    ),
    statement=selector_statement,
    reason="STANDARD_HASH cannot make its checksum",
)


def unhashed(session: Session, extract: Extract) -> Mapping[int, str]:
    """Return the columns that a database cannot hash, by index, each with why."""
    found = HASHING.unhashed(extract)
    character_set = str(session.value(_CHARACTER_SET))
    if character_set != _UTF_8:
        for index, column in enumerate(extract.projection.columns):
            if column.output_type == "string" and index not in found:
                found[index] = f"the database's character set is {character_set}, not {_UTF_8}"
    return found


def hasher_of(spec: SourceSpec) -> SqlHasher:
    """Connect; return what computes checksums in that session, which reads at the run's SCN."""
    session = Session(spec, action="checksums", scans=True)
    return SqlHasher(hashing=HASHING, rows=session.run, cancel=session.cancel, close=session.close)
