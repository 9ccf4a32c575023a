"""Oracle types: the Arrow type of each, and the SQL that fetches it unchanged.

`TYPES` is the one table of them. A type that no Arrow type holds exactly is fetched as the
database's text. A type without an exact text is refused by name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from partition_planner.model import ColumnInfo
from unloader.errors import SourceError
from unloader.model import ReadColumn, ValueOptions
from unloader.sources.readings import BATCHES, TEXT, ColumnReadings, Reading, Use
from unloader.sources.statement import quoted

if TYPE_CHECKING:
    import oracledb


Form = Literal[
    "plain", "number", "moment", "utc", "zoned", "zone", "hex", "real", "boolean", "lob", "document"
]
"""The form in which a column is fetched.

plain: the value itself. number: text of TM9. moment: text of a date and time; zoned: the same,
followed by offset and zone; utc: text of an instant. zone: the name of a time zone. hex: bytes to
be written as digits. real, boolean: a binary float or truth value to be written as text. lob: small
values of a LOB, and the locators of large values. document: a LOB that the database makes of the
value.
"""

ZONE_OF = "zone of "
"""The start of the source type of a zone column."""
ZONE_SUFFIX = "_zone"
MOMENT = "SYYYY-MM-DD HH24:MI:SS"
_MAX_DECIMAL = 38
"""Digits of decimal128, the widest that DuckDB, Spark and BigQuery read from Parquet."""
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_ZONED = "TIMESTAMP WITH TIME ZONE"
_LOCAL = "TIMESTAMP WITH LOCAL TIME ZONE"
_MOMENTS = ("TIMESTAMP", _ZONED, _LOCAL)
PARQUET: frozenset[Use] = frozenset(("parquet",))


Output = tuple[str, str, bool]
"""What a column becomes: its Arrow type, a note for the user, and whether it is lossless."""


def _output(native: NativeType, parquet: bool, values: ValueOptions) -> Output:
    """Return what a type becomes for Parquet, or for text."""
    if native.name in ("NUMBER", "FLOAT"):
        precision, scale = decimal_digits(native)
        if precision is not None and scale >= 0 and max(precision, scale) <= _MAX_DECIMAL:
            if scale == 0 and precision <= 18:
                return "int32" if precision <= 9 else "int64", "", True
            return f"decimal128({max(precision, scale)}, {scale})", "", True
        why = "more digits than decimal(38)"
        if precision is None or scale < 0:
            why = "no precision" if precision is None else "negative scale"
        form = values.number_without_precision
        if not parquet or form == "string":
            return "string", f"{why}: exact text", True
        if form == "double":
            note = f"{why}: nearest double, because of --number-without-precision"
            return "double", note, False
        match = _DECIMAL.fullmatch(form)
        if match is None:
            raise SourceError(
                f"--number-without-precision does not have the form {form}",
                "give string, double or decimal(PRECISION,SCALE)",
            )
        digits = f"decimal128({match[1]}, {match[2]})"
        return digits, f"{why}: a value that does not fit is refused", True
    if native.name not in _MOMENTS:
        note = "exact text" if native.name in _TEXT_OF else ""
        return TYPES[native.name][0], note, True
    if native.name == _ZONED and not parquet:
        return "string", "exact text with offset, and region if there is one", True
    utc, note = ("", "") if native.name == "TIMESTAMP" else (", tz=UTC", "instant in UTC")
    unit = "us"
    if fraction_digits(native) > 6:
        if not parquet or values.nanoseconds != "timestamp":
            return "string", "7 to 9 digits of a second: exact text", True
        unit, note = "ns", f"{note}, years 1677 to 2262".removeprefix(", ")
    kept = native.name != _ZONED or values.zone_columns
    note = note if kept else f"{note}; its zone with --zone-columns"
    return f"timestamp[{unit}{utc}]", note, kept


def decimal_digits(native: NativeType) -> tuple[int | None, int]:
    """Return precision and scale of a NUMBER; no precision where values may have any scale."""
    if native.name == "FLOAT" or not native.numbers:
        return None, 0
    scale = native.numbers[1] if len(native.numbers) > 1 else 0
    return (_MAX_DECIMAL if native.numbers[0] is None else native.numbers[0]), scale or 0


def fraction_digits(native: NativeType) -> int:
    """Return the digits of a second's fraction: 0 for DATE, 6 for a bare TIMESTAMP."""
    if native.name == "DATE":
        return 0
    return 6 if native.first is None else native.first


TYPES: dict[str, tuple[str, Form]] = {
    "NUMBER": ("", "number"),
    "FLOAT": ("", "number"),
    "BINARY_FLOAT": ("float", "real"),
    "BINARY_DOUBLE": ("double", "real"),
    "VARCHAR2": ("string", "plain"),
    "NVARCHAR2": ("string", "plain"),
    "CHAR": ("string", "plain"),
    "NCHAR": ("string", "plain"),
    "LONG": ("string", "plain"),
    "RAW": ("binary", "hex"),
    "LONG RAW": ("binary", "hex"),
    "DATE": ("timestamp[s]", "moment"),
    "TIMESTAMP": ("", "moment"),
    _ZONED: ("", "zoned"),
    _LOCAL: ("", "utc"),
    "INTERVAL YEAR TO MONTH": ("string", "plain"),
    "INTERVAL DAY TO SECOND": ("string", "plain"),
    "CLOB": ("string", "lob"),
    "NCLOB": ("string", "lob"),
    "BLOB": ("binary", "lob"),
    "ROWID": ("string", "plain"),
    "UROWID": ("string", "plain"),
    "XMLTYPE": ("string", "document"),
    "JSON": ("string", "document"),
    "VECTOR": ("string", "document"),
    "BOOLEAN": ("bool", "boolean"),
}
"""Every readable type, its output type, and the form of its text; docs/types.md documents them for
users. Where the output type is empty, it depends on the digits and on the output."""

_TEXT_OF = {
    "INTERVAL YEAR TO MONTH": "TO_CHAR({})",
    "INTERVAL DAY TO SECOND": "TO_CHAR({})",
    "ROWID": "ROWIDTOCHAR({})",
    "UROWID": "CAST({} AS VARCHAR2(4000))",
    "XMLTYPE": "XMLSERIALIZE(CONTENT {} AS CLOB)",
    "JSON": "JSON_SERIALIZE({} RETURNING CLOB)",
    "VECTOR": "VECTOR_SERIALIZE({} RETURNING CLOB)",
}
"""SQL for the text of types that the driver does not deliver exactly."""


def readings_of(column: ColumnInfo, values: ValueOptions) -> tuple[ColumnReadings, ...]:
    """Return how a column, and its zone if asked for, can be read; `SourceError` if not exactly."""
    native = parse_native(column.native_type)
    if native.name not in TYPES:
        raise SourceError(
            f"column {column.name} has the type {column.native_type}, which cannot be read exactly",
            f"leave it out with --exclude {column.name}",
        )
    text, parquet = _output(native, False, values), _output(native, True, values)
    if text == parquet:
        usual: tuple[Reading, ...] = (_reading(column, native, text, BATCHES, as_text=False),)
    else:
        usual = (
            _reading(column, native, text, TEXT, as_text=False),
            _reading(column, native, parquet, PARQUET, as_text=False),
        )
    exact = ("string", "exact text, as requested", True)
    found = ColumnReadings(
        name=column.name,
        source_type=column.native_type,
        nullable=column.nullable,
        readings=(*usual, _reading(column, native, exact, BATCHES, as_text=True)),
    )
    if values.zone_columns and native.name == _ZONED and parquet[0] != "string":
        source_type = ZONE_OF + column.native_type
        zone = Reading(
            expression=f"TO_CHAR({quoted(column.name)},'TZR')",
            output_type="string",
            serves=PARQUET,
            as_text=False,
            note=f"time zone of {column.name}",
            metadata=(("source_type", source_type),),
        )
        return found, ColumnReadings(
            name=column.name + ZONE_SUFFIX,
            source_type=source_type,
            nullable=column.nullable,
            readings=(zone,),
            beside=column.name,
            added_by="--zone-columns",
        )
    return (found,)


def _reading(
    column: ColumnInfo, native: NativeType, output: Output, serves: frozenset[Use], *, as_text: bool
) -> Reading:
    kind, note, is_lossless = output
    metadata = {"source_type": column.native_type}
    # The type that a column's text represents, for the encoder. A timestamp that the user wants as
    # exact text has no type: no mask may change it.
    if kind != "string":
        if native.name == "DATE":
            metadata["text_class"] = "date"
    elif _form(native, kind) in ("number", "real"):
        metadata["text_class"] = "number"
    elif native.name in _MOMENTS and not as_text:
        metadata["text_class"] = "timestamp"
    expression = _TEXT_OF.get(native.name, "{}").format(quoted(column.name))
    form = _form(native, kind)
    if form == "number":
        expression = number_text(expression)
    elif form == "zoned":
        expression = moment_text(expression, native, " TZH:TZM TZR")
    else:
        if native.name == _LOCAL:
            # The manuals disagree on which zone SYS_EXTRACT_UTC takes such a value to be in.
            expression = f"{expression} AT TIME ZONE '+00:00'"
        if native.name in (_ZONED, _LOCAL):
            expression = f"SYS_EXTRACT_UTC({expression})"
        if form in ("moment", "utc"):
            expression = moment_text(expression, native)
    return Reading(
        expression=expression,
        output_type=kind,
        serves=serves,
        as_text=as_text,
        lossless=is_lossless,
        note=note,
        metadata=tuple(metadata.items()),
    )


def form_of(column: ReadColumn) -> Form:
    if column.source_type.startswith(ZONE_OF):
        return "zone"
    return _form(parse_native(column.source_type), column.output_type)


def _form(native: NativeType, output: str) -> Form:
    _, form = TYPES[native.name]
    if output == "string" or form in ("lob", "document"):
        return form
    return "moment" if output.startswith("timestamp[ns") else "plain"


def number_text(value: str) -> str:
    return f"TO_CHAR({value},'TM9','NLS_NUMERIC_CHARACTERS=''.,''')"


def moment_text(value: str, native: NativeType, zone: str = "") -> str:
    """Return SQL for the text of a date or timestamp, with the elements of its zone after it."""
    digits = fraction_digits(native)
    return f"TO_CHAR({value},'{MOMENT}{f'.FF{digits}' if digits else ''}{zone}')"


ROWID = "rowid"
"""Attribute of a column: "no" where the rows it belongs to have no ROWID (a view, a query, ...)."""

_ARGUMENTS = re.compile(r"\s*\(([^)]*)\)")
_DESCRIBED = {
    "DB_TYPE_VARCHAR": "VARCHAR2",
    "DB_TYPE_NVARCHAR": "NVARCHAR2",
    "DB_TYPE_TIMESTAMP_TZ": "TIMESTAMP WITH TIME ZONE",
    "DB_TYPE_TIMESTAMP_LTZ": "TIMESTAMP WITH LOCAL TIME ZONE",
    "DB_TYPE_INTERVAL_DS": "INTERVAL DAY TO SECOND",
    "DB_TYPE_INTERVAL_YM": "INTERVAL YEAR TO MONTH",
    "DB_TYPE_LONG_RAW": "LONG RAW",
    "DB_TYPE_LONG_NVARCHAR": "LONG",
}
"""The driver's names that are not Oracle's behind their `DB_TYPE_`."""
_NO_SCALE = -127
"""What a describe has as the scale of a NUMBER or FLOAT without one."""


class NativeType(Struct, frozen=True, kw_only=True):
    """A type's name and the arguments in its parentheses."""

    name: str
    """Without parentheses: NUMBER, TIMESTAMP WITH TIME ZONE, LONG RAW, SCOTT.ADDRESS_T, ..."""
    numbers: tuple[int | None, ...] = ()
    """The arguments in order; None for an argument that is not a number (`*`)."""
    in_chars: bool = False
    """A length is one of characters, not of bytes."""

    @property
    def first(self) -> int | None:
        return self.numbers[0] if self.numbers else None


@lru_cache(maxsize=256)
def parse_native(text: str) -> NativeType:
    """Return the parts of a type as Oracle prints it, such as `INTERVAL DAY(2) TO SECOND(6)`."""
    numbers: list[int | None] = []
    for arguments in _ARGUMENTS.findall(text):
        for argument in arguments.split(","):
            word = argument.split()[0] if argument.split() else ""
            numbers.append(int(word) if re.fullmatch(r"-?\d+", word) else None)
    name = " ".join(_ARGUMENTS.sub("", text).split())
    if name in ("SYS.XMLTYPE", "PUBLIC.XMLTYPE"):
        name = "XMLTYPE"
    return NativeType(
        name=name,
        numbers=tuple(numbers),
        in_chars=" CHAR)" in text or name in ("NCHAR", "NVARCHAR2"),
    )


def native_text(
    name: str, *, precision: int | None, scale: int | None, length: int | None, in_chars: bool
) -> str:
    """Return a type as Oracle prints it; `name` is DATA_TYPE, with the digits of moments.

    `length` is CHAR_LENGTH, or DATA_LENGTH of RAW and UROWID. `in_chars`: CHAR_USED is C.
    """
    if name == "NUMBER":
        if precision is None:
            return "NUMBER" if scale is None else f"NUMBER(*,{scale})"
        return f"NUMBER({precision},{scale})" if scale else f"NUMBER({precision})"
    if name == "FLOAT":
        return f"FLOAT({precision})" if precision else "FLOAT"
    if name in ("VARCHAR2", "CHAR"):
        return f"{name}({length} {'CHAR' if in_chars else 'BYTE'})" if length else name
    if name in ("NVARCHAR2", "NCHAR", "RAW", "UROWID"):
        return f"{name}({length})" if length else name
    return name


def described_column(info: oracledb.FetchInfo) -> ColumnInfo:
    """Return a column of a query as the driver describes it; its rows have no ROWID."""
    driver_name = str(info.type_code.name)
    name = _DESCRIBED.get(driver_name, driver_name.removeprefix("DB_TYPE_"))
    if name == "OBJECT" and info.type is not None:
        name = f"{info.type.schema}.{info.type.name}"
    precision, scale, length = None, None, info.internal_size or None
    if name == "NUMBER":
        # An expression has neither: (0, 0) or no scale at all. A FLOAT has digits, but no scale.
        precision, scale = info.precision or None, info.scale
        if scale == _NO_SCALE:
            name, scale = "FLOAT" if precision else "NUMBER", None
        elif precision is None:
            scale = scale or None
    elif name.startswith("TIMESTAMP"):
        name = name.replace("TIMESTAMP", f"TIMESTAMP({info.scale or 0})", 1)
    elif name in ("NVARCHAR2", "NCHAR"):
        length = info.display_size
    return ColumnInfo(
        name=info.name,
        native_type=native_text(
            name, precision=precision, scale=scale, length=length, in_chars=False
        ),
        nullable=info.null_ok,
        attributes=((ROWID, "no"),),
    )
