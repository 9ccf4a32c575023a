"""The functions that deal with dates, timestamps and intervals, and TO_CHAR."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from oracle_server.data.moments import at_zone, in_utc, now, offset_seconds, region
from oracle_server.model import Moment, OracleError, Type
from oracle_server.sql.expressions import conversions, formats
from oracle_server.sql.expressions.conversions import NUMBERS, expression_number, varchar
from oracle_server.sql.expressions.evaluation import (
    Compiled,
    Environment,
    as_text,
    strict,
    text_length,
)
from oracle_server.sql.syntax import Unsupported

Arguments = list[Compiled]

_TSTZ = "TIMESTAMP WITH TIME ZONE"


def _to_char(arguments: Arguments, environment: Environment) -> Compiled:
    first = arguments[0]
    if len(arguments) == 1:
        length = text_length(first.type)
        if first.type.name.startswith(("DATE", "TIMESTAMP")):
            length = 75
        if first.type.name.startswith("INTERVAL"):
            length = 30
        return Compiled(
            type=varchar(length),
            value=as_text(first, environment),
            volatile=first.type.name.startswith(("DATE", "TIMESTAMP")),
        )
    if not all(argument.constant for argument in arguments[1:]):
        raise Unsupported("TO_CHAR")
    mask = arguments[1].now()
    if mask is None:
        return Compiled(type=varchar(0), value=lambda row: None)
    if first.type.name.startswith(("DATE", "TIMESTAMP")):
        return _moment_to_char(first, mask, environment)
    if first.type.name in NUMBERS and mask.upper() in ("TM9", "TM"):
        separator = arguments[2].now() if len(arguments) > 2 else ""
        point = separator.split("=")[1].strip("' ")[:1] if separator else "."
        return Compiled(
            type=varchar(64),
            value=strict([first], lambda n: formats.number_text(n).replace(".", point)),
        )
    if first.type.name.startswith("INTERVAL"):
        return Compiled(type=varchar(30), value=as_text(first, environment))
    raise Unsupported("TO_CHAR")


def _moment_to_char(first: Compiled, mask: str, environment: Environment) -> Compiled:
    kind, settings = first.type, environment.settings
    kinds = {element.upper() for element in formats.elements(mask)}
    if kind.name == "DATE" and any(element.startswith(("FF", "TZ")) for element in kinds):
        raise OracleError(1821, "date format not recognized")
    if kind.name == "TIMESTAMP" and any(element.startswith("TZ") for element in kinds):
        raise OracleError(1821, "date format not recognized")
    digits = 6 if kind.scale is None else kind.scale

    def text(moment: Moment) -> str:
        return formats.moment_text(conversions.displayed(moment, kind, settings), mask, digits)

    local = kind.name == "TIMESTAMP WITH LOCAL TIME ZONE"
    length = formats.mask_length(mask)
    return Compiled(type=varchar(length), value=strict([first], text), volatile=local)


def _to_moment(name: str, default_mask: str, kind: Type) -> Callable[..., Compiled]:
    def build(arguments: Arguments, environment: Environment) -> Compiled:
        first = arguments[0]
        if not all(argument.constant for argument in arguments[1:]):
            raise Unsupported(name)
        mask = arguments[1].now() if len(arguments) > 1 else None
        mask = mask or environment.settings.get(default_mask, "DD-MON-RR")
        text = Compiled(type=first.type, value=as_text(first, environment))
        zone = environment.settings.get("TIME_ZONE", "+00:00")

        def moment(found: str) -> Moment:
            made = conversions.moment_from(found, mask)
            needs_zone = kind.name == _TSTZ and made.zone is None
            return made._replace(zone=zone) if needs_zone else made

        return Compiled(type=kind, value=strict([text], moment))

    return build


def _literal_moment(kind: Type) -> Callable[..., Compiled]:
    """Return the builder of DATE '...' and TIMESTAMP '...'."""

    def build(arguments: Arguments, environment: Environment) -> Compiled:
        text = str(arguments[0].now())
        if kind.name == "DATE":
            made = conversions.moment_from(text, "SYYYY-MM-DD")
            return Compiled(type=kind, value=lambda row: made)
        mask = "SYYYY-MM-DD HH24:MI:SS" + ("XFF" if "." in text else "")
        zoned = text.strip().count(" ") > 1 or text.rstrip()[-6:-5] in ("+", "-")
        made = conversions.moment_from(text, mask + (" TZR" if zoned else ""))
        name = "TIMESTAMP WITH TIME ZONE" if zoned else "TIMESTAMP"
        return Compiled(type=Type(name=name, scale=9), value=lambda row: made)

    return build


def extract(field: str, first: Compiled) -> Compiled:
    """Return EXTRACT(field FROM first) ready to be evaluated.

    Raises:
        OracleError: ORA-30076.
        Unsupported: There is no such field.
    """
    if field.startswith("TIMEZONE_") and first.type.name == "TIMESTAMP":
        raise OracleError(30076, "invalid extract field for extract source")
    if field == "TIMEZONE_REGION":
        return Compiled(type=varchar(64), value=strict([first], _region_name))
    if field not in _FIELDS:
        raise Unsupported(field)
    return Compiled(type=expression_number(), value=strict([first], _FIELDS[field]))


def _region_name(moment: Moment) -> str:
    zone = moment.zone or "UTC"
    return "UNKNOWN" if region(zone) is None else zone


_FIELDS: dict[str, Callable[[Moment], Any]] = {
    "YEAR": lambda m: m.year,
    "MONTH": lambda m: m.month,
    "DAY": lambda m: m.day,
    "HOUR": lambda m: m.hour,
    "MINUTE": lambda m: m.minute,
    "SECOND": lambda m: m.second + Decimal(m.nanos).scaleb(-9),
    "TIMEZONE_HOUR": lambda m: int(offset_seconds(m) / 3600),
    "TIMEZONE_MINUTE": lambda m: int(math.fmod(offset_seconds(m), 3600) / 60),
}


def _moment_now(name: str, scale: int | None) -> Callable[..., Compiled]:
    def build(arguments: Arguments, environment: Environment) -> Compiled:
        zoned = name.endswith("ZONE")

        def value(row: Sequence[Any]) -> Moment:
            at = now()
            return at if zoned else at._replace(zone=None, nanos=at.nanos if scale else 0)

        return Compiled(type=Type(name=name, scale=scale), value=value, volatile=True)

    return build


def _utc(arguments: Arguments, environment: Environment) -> Compiled:
    first = arguments[0]
    if first.type.name == "TIMESTAMP WITH LOCAL TIME ZONE":
        return Compiled(
            type=Type(name="TIMESTAMP", scale=first.type.scale),
            value=strict([first], lambda moment: moment._replace(zone=None)),
        )
    if first.type.name != _TSTZ:
        text = f"inconsistent datatypes: expected {_TSTZ} got {first.type.name}"
        raise OracleError(932, text)
    kind = Type(name="TIMESTAMP", scale=first.type.scale)
    return Compiled(type=kind, value=strict([first], in_utc))


def _at_zone(arguments: Arguments, environment: Environment) -> Compiled:
    first, zone = arguments
    own = environment.settings.get("TIME_ZONE", "+00:00")
    local = first.type.name == "TIMESTAMP WITH LOCAL TIME ZONE"

    def moved(moment: Moment, name: str) -> Moment:
        if local:
            return at_zone(moment._replace(zone=None), name)
        return at_zone(in_utc(moment if moment.zone else moment._replace(zone=own)), name)

    return Compiled(
        type=Type(name=_TSTZ, scale=first.type.scale), value=strict([first, zone], moved)
    )


BUILDERS: dict[str, Callable[..., Compiled]] = {
    "TO_CHAR": _to_char,
    "TO_NCHAR": _to_char,
    "TO_DATE": _to_moment("TO_DATE", "NLS_DATE_FORMAT", Type(name="DATE")),
    "TO_TIMESTAMP": _to_moment(
        "TO_TIMESTAMP", "NLS_TIMESTAMP_FORMAT", Type(name="TIMESTAMP", scale=9)
    ),
    "TO_TIMESTAMP_TZ": _to_moment(
        "TO_TIMESTAMP_TZ", "NLS_TIMESTAMP_TZ_FORMAT", Type(name=_TSTZ, scale=9)
    ),
    "DATE": _literal_moment(Type(name="DATE")),
    "TIMESTAMP": _literal_moment(Type(name="TIMESTAMP", scale=9)),
    "SYS_EXTRACT_UTC": _utc,
    "AT TIME ZONE": _at_zone,
    "SYSDATE": _moment_now("DATE", None),
    "CURRENT_DATE": _moment_now("DATE", None),
    "SYSTIMESTAMP": _moment_now(_TSTZ, 6),
    "CURRENT_TIMESTAMP": _moment_now(_TSTZ, 6),
    "LOCALTIMESTAMP": _moment_now("TIMESTAMP", 6),
}
