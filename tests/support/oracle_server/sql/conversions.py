"""Conversions between values and texts, as masks and settings of a session have them."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from oracle_server.data.moments import at_zone, day_count, in_utc, now, offset_seconds, region
from oracle_server.model import DaySecond, Moment, OracleError, Rowid, Type, YearMonth

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_ELEMENT = re.compile(
    r'"[^"]*"|SYYYY|YYYY|RR|MON|MM|MI|DD|HH24|HH|SS|FF[1-9]?|TZH|TZM|TZR|AM|PM|X|[-/,.;: ]',
    re.IGNORECASE,
)


def elements(mask: str) -> list[str]:
    """Return the elements of a date mask.

    Raises:
        OracleError: ORA-01821.
    """
    return list(_elements(mask))


@lru_cache(maxsize=256)
def _elements(mask: str) -> tuple[str, ...]:
    found, at = [], 0
    while at < len(mask):
        match = _ELEMENT.match(mask, at)
        if match is None:
            raise OracleError(1821, "date format not recognized")
        found.append(match.group())
        at = match.end()
    return tuple(found)


def moment_text(moment: Moment, mask: str, fraction: int = 6) -> str:
    """Return a date or timestamp by a mask; `fraction` digits for FF without a number."""
    return "".join(_element_text(moment, element, fraction) for element in _elements(mask))


def _element_text(moment: Moment, element: str, fraction: int) -> str:
    if element[0] == '"':
        return element[1:-1]
    if element in "-/,.;: ":
        return element
    upper = element.upper()
    simple = _SIMPLE.get(upper)
    if simple is not None:
        return simple(moment)
    if upper.startswith("FF"):
        digits = int(upper[2:]) if upper[2:] else fraction
        return f"{moment.nanos:09d}"[:digits]
    if upper.startswith("TZ"):
        return _zone_text(moment, upper)
    return MONTHS[moment.month - 1] if upper == "MON" else ("AM", "PM")[moment.hour >= 12]


_SIMPLE: dict[str, Callable[[Moment], str]] = {
    "SYYYY": lambda m: f"{'-' if m.year < 0 else ' '}{abs(m.year):04d}",
    "YYYY": lambda m: f"{abs(m.year):04d}",
    "RR": lambda m: f"{abs(m.year) % 100:02d}",
    "MM": lambda m: f"{m.month:02d}",
    "DD": lambda m: f"{m.day:02d}",
    "HH24": lambda m: f"{m.hour:02d}",
    "HH": lambda m: f"{(m.hour + 11) % 12 + 1:02d}",
    "MI": lambda m: f"{m.minute:02d}",
    "SS": lambda m: f"{m.second:02d}",
    "X": lambda m: ".",
}


def _zone_text(moment: Moment, element: str) -> str:
    zone = moment.zone or "+00:00"
    if element == "TZR":
        return zone if region(zone) is None else zone.upper()
    sign, seconds = ("-", "+")[(offset := offset_seconds(moment)) >= 0], abs(offset)
    return f"{sign}{seconds // 3600:02d}" if element == "TZH" else f"{seconds // 60 % 60:02d}"


def mask_length(mask: str) -> int:
    """Return the longest text a mask can give."""
    widths = {"TZR": 64, "TZH": 3, "FF": 9, "HH24": 2}
    total = 0
    for element in _elements(mask):
        upper = element.upper()
        if element[0] == '"':
            total += len(element) - 2
        elif upper.startswith("FF") and upper[2:]:
            total += int(upper[2:])
        else:
            total += widths.get(upper, len(upper))
    return total


def number_text(value: int | Decimal | float, *, limit: int = 64) -> str:
    """Return a number as TM9 writes it: `.5`, `-12`, and `1E-130` where `limit` is exceeded."""
    exact = value if isinstance(value, (int, Decimal)) else Decimal(repr(value))
    if isinstance(exact, int):
        exact = Decimal(exact)
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    mantissa = "".join(map(str, digits)).lstrip("0")
    stripped = mantissa.rstrip("0")
    exponent += len(mantissa) - len(stripped)
    if not stripped:
        return "0"
    prefix = "-" if sign else ""
    if exponent >= 0:
        plain = prefix + stripped + "0" * exponent
    elif -exponent >= len(stripped):
        plain = f"{prefix}.{'0' * (-exponent - len(stripped))}{stripped}"
    else:
        plain = f"{prefix}{stripped[:exponent]}.{stripped[exponent:]}"
    if len(plain) <= limit:
        return plain
    power = exponent + len(stripped) - 1
    fraction = f".{stripped[1:]}" if len(stripped) > 1 else ""
    return f"{prefix}{stripped[0]}{fraction}E{'-' if power < 0 else '+'}{abs(power):02d}"


def year_month_text(value: YearMonth, precision: int = 2) -> str:
    years, months = divmod(abs(value.months), 12)
    return f"{'-' if value.months < 0 else '+'}{years:0{precision}d}-{months:02d}"


def day_second_text(value: DaySecond, precision: int = 2, scale: int = 6) -> str:
    seconds, nanos = divmod(abs(value.nanos), 10**9)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    sign = "-" if value.nanos < 0 else "+"
    fraction = f".{nanos:09d}"[: scale + 1] if scale else ""
    return f"{sign}{days:0{precision}d} {hour:02d}:{minute:02d}:{second:02d}{fraction}"


_FIELD = {
    "SYYYY": r"([-+ ]?\d{1,4})", "YYYY": r"(\d{1,4})", "RR": r"(\d{1,2})", "MM": r"(\d{1,2})",
    "MON": r"([A-Za-z]{3})", "DD": r"(\d{1,2})", "HH24": r"(\d{1,2})", "HH": r"(\d{1,2})",
    "MI": r"(\d{1,2})", "SS": r"(\d{1,2})", "FF": r"(\d{1,9})", "AM": r"([AaPp]\.?[Mm]\.?)",
    "TZH": r"([-+]\d{1,2})", "TZM": r"(\d{2})", "TZR": r"([-+]\d{1,2}:\d{2}|[A-Za-z/_]+)",
}  # fmt: skip


def parse_moment(text: str, mask: str, default: Moment) -> Moment:
    """Return what a text means by a mask; fields it lacks come from `default`.

    Raises:
        OracleError: ORA-01861 if the text does not follow the mask, ORA-01839 and others for days
            that do not exist.
    """
    pattern, wanted = "", []
    for element in _elements(mask):
        upper = element.upper()
        upper = "FF" if upper.startswith("FF") else "AM" if upper == "PM" else upper
        if upper in _FIELD:
            wanted.append(upper)
            pattern += _FIELD[upper]
        elif element[0] == '"':
            pattern += re.escape(element[1:-1])
        else:
            pattern += {" ": r"\s*", "X": r"\."}.get(upper, r"[-/,.;: T]?")
    match = re.fullmatch(r"\s*" + pattern + r"\s*", text)
    if match is None:
        raise OracleError(1861, "literal does not match format string")
    return _checked(_filled(dict(zip(wanted, match.groups(), strict=True)), default))


def _filled(found: dict[str, str], default: Moment) -> Moment:
    year = default.year
    for name in ("SYYYY", "YYYY"):
        if name in found:
            year = int(found[name])
    if "RR" in found:
        year = int(found["RR"]) + (1900 if int(found["RR"]) >= 50 else 2000)
    month = int(found.get("MM", default.month))
    if "MON" in found:
        month = MONTHS.index(found["MON"].upper()) + 1
    hour = int(found.get("HH24", found.get("HH", default.hour)))
    if "AM" in found:
        hour = hour % 12 + (12 if found["AM"][0] in "Pp" else 0)
    zone = found.get("TZR", default.zone)
    if "TZH" in found:
        zone = f"{found['TZH'][0]}{int(found['TZH'][1:]):02d}:{found.get('TZM', '00')}"
    day, minute = int(found.get("DD", default.day)), int(found.get("MI", default.minute))
    nanos = int(found["FF"].ljust(9, "0")) if "FF" in found else default.nanos
    return Moment(year, month, day, hour, minute, int(found.get("SS", default.second)), nanos, zone)


def _checked(moment: Moment) -> Moment:
    if moment.year == 0 or not -4712 <= moment.year <= 9999:
        raise OracleError(1841, "(full) year must be between -4713 and +9999, and not be 0")
    if not 1 <= moment.month <= 12:
        raise OracleError(1843, "not a valid month")
    if not 1 <= moment.day <= day_count(moment.year, moment.month):
        raise OracleError(1839, "date not valid for month specified")
    if moment.hour > 23 or moment.minute > 59 or moment.second > 59:
        raise OracleError(1850, "hour must be between 0 and 23")
    return moment


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
    """Return the type of a text expression of that many characters."""
    return Type(name="VARCHAR2", length=length, in_chars=True)


def expression_number() -> Type:
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
        return number_text(value, limit=40)
    if isinstance(value, Moment):
        fraction = 6 if kind.scale is None else kind.scale
        mask = mask_of(kind, settings)
        return moment_text(displayed(value, kind, settings), mask, fraction)
    if isinstance(value, YearMonth):
        return year_month_text(value, 2 if kind.precision is None else kind.precision)
    if isinstance(value, DaySecond):
        precision = 2 if kind.precision is None else kind.precision
        return day_second_text(value, precision, 6 if kind.scale is None else kind.scale)
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
        OracleError: ORA-01722 for a text that is not a number.
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
    return parse_moment(text, mask, Moment(today.year, today.month, 1))


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
        return re.sub(r"^(-?)\.", r"\g<1>0.", number_text(value))
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Moment):
        return f'"{moment_text(value, _JSON_MASK)}"'
    return json.dumps(bytes(value).hex().upper())


def vector_text(value: tuple[Any, ...], element: str = "") -> str:
    """Return a vector as VECTOR_SERIALIZE writes it: `[1.0E+000,2.5E+000]`, integers bare."""
    if element in ("INT8", "BINARY"):
        return "[" + ",".join(str(int(part)) for part in value) + "]"
    single = element != "FLOAT64"
    return "[" + ",".join(float_text(float(part), single=single) for part in value) + "]"
