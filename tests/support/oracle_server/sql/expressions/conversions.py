"""Values turned into other types, as Oracle does where a statement asks for it or implies it."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from oracle_server.data.moments import at_zone, in_utc, now
from oracle_server.model import DaySecond, Moment, OracleError, Rowid, Type, YearMonth
from oracle_server.sql.expressions import formats

EXACT = Context(prec=40, rounding=ROUND_HALF_UP, Emax=999, Emin=-999)
NUMBERS = {"NUMBER", "FLOAT", "BINARY_FLOAT", "BINARY_DOUBLE"}
LOBS = {"CLOB", "NCLOB", "BLOB"}

_JSON_MASK = 'YYYY-MM-DD"T"HH24:MI:SS'
_DEFAULT_MASKS = {
    "DATE": ("NLS_DATE_FORMAT", "DD-MON-RR"),
    "TIMESTAMP": ("NLS_TIMESTAMP_FORMAT", "DD-MON-RR HH.MI.SSXFF AM"),
    "TIMESTAMP WITH LOCAL TIME ZONE": ("NLS_TIMESTAMP_FORMAT", "DD-MON-RR HH.MI.SSXFF AM"),
    "TIMESTAMP WITH TIME ZONE": ("NLS_TIMESTAMP_TZ_FORMAT", "DD-MON-RR HH.MI.SSXFF AM TZR"),
}


def varchar(length: int) -> Type:
    """Return the type of a text expression of so many characters."""
    return Type(name="VARCHAR2", length=length, in_chars=True)


def expression_number() -> Type:
    """Return the type of a NUMBER expression."""
    return Type(name="NUMBER", expression=True)


def mask_of(kind: Type, settings: Mapping[str, str]) -> str:
    """Return the mask that texts of a type have where none is given."""
    name, mask = _DEFAULT_MASKS.get(kind.name, _DEFAULT_MASKS["DATE"])
    return settings.get(name, mask)


def displayed(value: Moment, kind: Type, settings: Mapping[str, str]) -> Moment:
    """Return a moment as a session sees it: local time zone types in the session's zone."""
    if kind.name != "TIMESTAMP WITH LOCAL TIME ZONE":
        return value
    return at_zone(value._replace(zone=None), settings.get("TIME_ZONE", "+00:00"))


def text_of(value: Any, kind: Type, settings: Mapping[str, str]) -> str | None:
    """Return a value as TO_CHAR without a mask would.

    Raises:
        OracleError: ORA-00932 for types that have no text.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return float_text(value, single=kind.name == "BINARY_FLOAT")
    if isinstance(value, (int, Decimal)):
        return formats.number_text(value, limit=40)
    if isinstance(value, Moment):
        fraction = 6 if kind.scale is None else kind.scale
        mask = mask_of(kind, settings)
        return formats.moment_text(displayed(value, kind, settings), mask, fraction)
    if isinstance(value, YearMonth):
        return formats.year_month_text(value, 2 if kind.precision is None else kind.precision)
    if isinstance(value, DaySecond):
        precision = 2 if kind.precision is None else kind.precision
        return formats.day_second_text(value, precision, 6 if kind.scale is None else kind.scale)
    if isinstance(value, Rowid):
        return str(value)
    if isinstance(value, bytes):
        return value.hex().upper()
    if hasattr(value, "read") and kind.name in ("CLOB", "NCLOB"):
        if value.length > 32767:
            raise OracleError(22835, f"Buffer too small for CLOB to CHAR (actual: {value.length})")
        return str(value.read(0, value.length))
    raise OracleError(932, f"inconsistent datatypes: expected CHAR got {kind.name}")


def float_text(value: float, *, single: bool = False) -> str:
    """Return a binary number as TO_CHAR writes it: `1.5E+000`, `Nan`, `-Inf`."""
    if value != value:
        return "Nan"
    if value in (float("inf"), float("-inf")):
        return "Inf" if value > 0 else "-Inf"
    exact = Decimal(_shortest_single(value) if single else repr(value))
    if not exact:
        return "0"
    sign, digits, exponent = exact.normalize().as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits))
    power = exponent + len(written) - 1
    tail = written[1:] or "0"
    return f"{'-' if sign else ''}{written[0]}.{tail}E{'-' if power < 0 else '+'}{abs(power):03d}"


def _shortest_single(value: float) -> str:
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if struct.pack("<f", float(text)) == struct.pack("<f", value):
            return text
    return repr(value)


def number_of(value: Any) -> int | Decimal | float | None:
    """Return a value as a number.

    Raises:
        OracleError: ORA-01722 for a text that is none.
    """
    if value is None or isinstance(value, (int, Decimal, float)):
        return value
    try:
        return Decimal(str(value).strip())
    except InvalidOperation as error:
        raise OracleError(1722, "invalid number") from error


def moment_from(text: str, mask: str) -> Moment:
    """Return what a text means by a mask; the first of this month where it has no date."""
    today = now()
    return formats.parse_moment(text, mask, Moment(today.year, today.month, 1))


def cast(value: Any, source: Type, target: Type, settings: Mapping[str, str]) -> Any:
    """Return a value as CAST to a type makes it.

    Raises:
        OracleError: ORA-01438 and others if it does not fit.
    """
    if value is None:
        return None
    if target.name in ("NUMBER", "FLOAT"):
        return _rounded(number_of(value), target)
    if target.name in ("BINARY_DOUBLE", "BINARY_FLOAT"):
        return float(number_of(value) or 0)
    if target.name in ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR"):
        text = text_of(value, source, settings) or ""
        return (text[: target.length] if target.length else text) or None
    if target.name in ("CLOB", "NCLOB"):
        return value if hasattr(value, "read") else text_of(value, source, settings)
    if isinstance(value, str) and target.name.startswith(("DATE", "TIMESTAMP")):
        value = moment_from(value, mask_of(target, settings))
    if isinstance(value, Moment):
        return _cast_moment(value, source, target, settings)
    return value


def _cast_moment(value: Moment, source: Type, target: Type, settings: Mapping[str, str]) -> Moment:
    value = displayed(value, source, settings)
    if target.name == "DATE":
        return value._replace(nanos=0, zone=None)
    digits = 6 if target.scale is None else target.scale
    unit = 10 ** (9 - digits)
    kept = value._replace(nanos=value.nanos // unit * unit)
    zone = settings.get("TIME_ZONE", "+00:00")
    if target.name == "TIMESTAMP":
        return kept._replace(zone=None)
    if target.name == "TIMESTAMP WITH LOCAL TIME ZONE":
        return in_utc(kept if kept.zone else kept._replace(zone=zone))
    return kept if kept.zone else kept._replace(zone=zone)


def _rounded(value: Any, target: Type) -> int | Decimal:
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if target.precision is None or target.name == "FLOAT":
        return exact
    places = target.scale or 0
    rounded = exact.quantize(Decimal(1).scaleb(-places, EXACT), context=EXACT)
    if rounded and rounded.adjusted() >= target.precision - places:
        raise OracleError(1438, "value larger than specified precision allowed for this column")
    return rounded


_TYPE = re.compile(r"([A-Z_0-9 ]+?)\s*(?:\(([^)]*)\))?\s*(WITH (?:LOCAL )?TIME ZONE)?$")


def type_named(text: str) -> Type:
    """Return the type that a CAST names, such as `VARCHAR2(30 CHAR)`.

    Raises:
        OracleError: ORA-00902.
    """
    match = _TYPE.match(" ".join(text.upper().split()))
    if match is None:
        raise OracleError(902, "invalid datatype")
    name, inside, zone = match.groups()
    numbers = [int(part) for part in re.findall(r"-?\d+", (inside or "").replace("- ", "-"))]
    name = {"VARCHAR": "VARCHAR2", "DECIMAL": "NUMBER", "NUMERIC": "NUMBER"}.get(name, name)
    if name in ("INTEGER", "INT", "SMALLINT"):
        return Type(name="NUMBER", precision=38, scale=0)
    if name == "NUMBER" or name == "FLOAT":
        precision = numbers[0] if numbers else None
        scale = numbers[1] if len(numbers) > 1 else 0 if numbers else None
        return Type(name=name, precision=precision, scale=scale)
    if name in ("VARCHAR2", "CHAR", "NVARCHAR2", "NCHAR", "RAW"):
        in_chars = "CHAR" in (inside or "") or name.startswith("N")
        return Type(name=name, length=numbers[0] if numbers else 1, in_chars=in_chars)
    if name == "TIMESTAMP":
        full = f"{name} {zone}" if zone else name
        return Type(name=full, scale=numbers[0] if numbers else 6)
    return Type(name=name)


def json_text(value: Any) -> str:
    """Return JSON data as JSON_SERIALIZE writes it: no blanks, numbers exact."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(k)}:{json_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)) and not isinstance(value, Moment):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (int, Decimal)):
        return re.sub(r"^(-?)\.", r"\g<1>0.", formats.number_text(value))
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Moment):
        return f'"{formats.moment_text(value, _JSON_MASK)}"'
    return json.dumps(bytes(value).hex().upper())


def vector_text(value: tuple[Any, ...], element: str = "") -> str:
    """Return a vector as VECTOR_SERIALIZE writes it: `[1.0E+000,2.5E+000]`, integers bare."""
    if element in ("INT8", "BINARY"):
        return "[" + ",".join(str(int(part)) for part in value) + "]"
    single = element != "FLOAT64"
    return "[" + ",".join(float_text(float(part), single=single) for part in value) + "]"
