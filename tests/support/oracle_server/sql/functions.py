"""Functions of Oracle that statements call."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from oracle_server.data.moments import at_zone, in_utc, now
from oracle_server.model import Moment, OracleError, Rowid, Type
from oracle_server.sql import conversions
from oracle_server.sql import conversions as formats
from oracle_server.sql.conversions import (
    EXACT,
    LOBS,
    NUMBERS,
    expression_number,
    number_of,
    varchar,
)
from oracle_server.sql.evaluation import (
    ROWID,
    Compiled,
    Environment,
    Value,
    as_text,
    common_type,
    strict,
    text_length,
)
from oracle_server.sql.syntax import Call, Unsupported

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


def _system_time(arguments: Arguments, environment: Environment) -> Compiled:
    return Compiled(type=Type(name=_TSTZ, scale=6), value=lambda row: now(), volatile=True)


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
    "SYSTIMESTAMP": _system_time,
}


def build(call: Call, arguments: Arguments, environment: Environment) -> Compiled:
    """Return a compiled function call.

    Raises:
        OracleError: The arguments are wrong.
        Unsupported: The function is not implemented here.
    """
    if call.name in ("CAST", "XMLSERIALIZE", "JSON_SERIALIZE", "VECTOR_SERIALIZE"):
        return _to_type(call, arguments[0], environment)
    if "." in call.name:
        environment.check(call.name)
    builder = _BUILDERS.get(call.name)
    if builder is not None:
        return builder(arguments, environment)
    if call.name in _OF_DATABASE:
        environment.check(call.name)
        kind = _OF_DATABASE[call.name]
        name, values = call.name, [argument.value for argument in arguments]
        return Compiled(
            type=kind,
            value=lambda row: environment.call(name, tuple(value(row) for value in values)),
            volatile=True,
        )
    if call.name in _PLAIN:
        kind, function = _PLAIN[call.name]
        return Compiled(type=kind, value=strict(arguments, function))
    raise Unsupported(call.name)


def _text_function(function: Callable[..., str | None]) -> Callable[..., Compiled]:
    """Return the builder of a function whose first argument is text and whose result is no longer."""

    def build(arguments: Arguments, environment: Environment) -> Compiled:
        first = Compiled(type=arguments[0].type, value=as_text(arguments[0], environment))
        kind = arguments[0].type
        if kind.name not in ("CLOB", "NCLOB"):
            kind = varchar(text_length(kind))
        inner = strict([first, *arguments[1:]], function)
        return Compiled(type=kind, value=lambda row: inner(row) or None)

    return build


def _to_type(call: Call, first: Compiled, environment: Environment) -> Compiled:
    default = {"XMLSERIALIZE": "CLOB", "CAST": ""}.get(call.name, "VARCHAR2(4000)")
    kind = conversions.type_named(call.extra or default)
    source, settings = first.type, environment.settings
    if call.name == "CAST":
        return Compiled(
            type=kind,
            value=lambda row: conversions.cast(first.value(row), source, kind, settings),
            volatile=source.name.startswith(("DATE", "TIMESTAMP")) or "LOCAL" in kind.name,
        )
    expected = call.name.partition("_")[0].replace("XMLSERIALIZE", "XMLTYPE")
    if source.name not in (expected, "CLOB", "VARCHAR2"):
        raise OracleError(932, f"inconsistent datatypes: expected {expected} got {source.name}")
    if kind.name == "CLOB":
        kind = Type(name="CLOB", expression=True)
    inner = first.value
    if source.name == "JSON":
        return Compiled(type=kind, value=_json(inner))
    if source.name == "VECTOR":
        element = source.element
        return Compiled(
            type=kind, value=strict([first], lambda v: conversions.vector_text(v, element))
        )
    return Compiled(type=kind, value=inner)


def _json(inner: Value) -> Value:
    """Return the text of JSON data, in which None within is JSON's null."""
    return lambda row: None if (found := inner(row)) is None else conversions.json_text(found)


def utf16_length(text: str) -> int:
    """Return the characters of a CLOB as Oracle counts them."""
    return len(text) + sum(1 for character in text if character > "\uffff")


def _lob_length(value: Any) -> int:
    if hasattr(value, "read"):
        return int(value.length)
    return utf16_length(value) if isinstance(value, str) else len(value)


def _get_length(arguments: Arguments, environment: Environment) -> Compiled:
    if arguments[0].type.name not in LOBS | {"VARCHAR2", "RAW", "CHAR"}:
        text = "PLS-00306: wrong number or types of arguments in call to 'GETLENGTH'"
        raise OracleError(6553, text)
    return Compiled(type=expression_number(), value=strict(arguments, _lob_length))


def _length(arguments: Arguments, environment: Environment) -> Compiled:
    if arguments[0].type.name in LOBS:
        return _get_length(arguments, environment)
    text = Compiled(type=arguments[0].type, value=as_text(arguments[0], environment))
    return Compiled(type=expression_number(), value=strict([text], len))


def _nvl(arguments: Arguments, environment: Environment) -> Compiled:
    values = [argument.value for argument in arguments]

    def value(row: Sequence[Any]) -> Any:
        return next((found for one in values if (found := one(row)) is not None), None)

    return Compiled(type=common_type(arguments), value=value)


def _decode(arguments: Arguments, environment: Environment) -> Compiled:
    subject, rest = arguments[0].value, arguments[1:]
    pairs = [(rest[i].value, rest[i + 1].value) for i in range(0, len(rest) - 1, 2)]
    otherwise = rest[-1].value if len(rest) % 2 else None
    results = [rest[i] for i in range(1, len(rest), 2)] + ([rest[-1]] if len(rest) % 2 else [])

    def value(row: Sequence[Any]) -> Any:
        found = subject(row)
        for key, result in pairs:
            if key(row) == found:
                return result(row)
        return otherwise(row) if otherwise is not None else None

    return Compiled(type=common_type(results), value=value)


def _number(function: Callable[..., Any]) -> tuple[Type, Callable[..., Any]]:
    return expression_number(), lambda *found: function(*map(_decimal, found))


def _decimal(value: Any) -> Decimal:
    found = number_of(value)
    return Decimal(0 if found is None else found)


def _substr(text: str, start: Any, length: Any = None) -> str | None:
    begin = int(start)
    begin = len(text) + begin if begin < 0 else max(begin - 1, 0)
    if length is not None and length < 1:
        return None
    return text[begin : None if length is None else begin + int(length)]


def _to_number(arguments: Arguments, environment: Environment) -> Compiled:
    if len(arguments) > 1:
        if set(str(arguments[1].now()).upper()) != {"X"}:
            raise Unsupported("TO_NUMBER")
        hexadecimal = strict(arguments[:1], lambda text: Decimal(int(text, 16)))
        return Compiled(type=expression_number(), value=hexadecimal)
    return Compiled(type=expression_number(), value=strict(arguments, number_of))


def _to_lob(name: str) -> Callable[..., Compiled]:
    def build(arguments: Arguments, environment: Environment) -> Compiled:
        first = arguments[0]
        if first.type.name in LOBS or first.type.name == "RAW":
            return Compiled(type=Type(name=name, expression=True), value=first.value)
        return Compiled(type=Type(name=name, expression=True), value=as_text(first, environment))

    return build


def _rowid_part(part: int) -> tuple[Type, Callable[..., Any]]:
    return expression_number(), lambda address: (
        address if isinstance(address, Rowid) else Rowid.parse(address)
    )[part]


def _rowid_text(arguments: Arguments, environment: Environment) -> Compiled:
    length = 18 if arguments[0].type.name == "ROWID" else 4000
    return Compiled(type=varchar(length), value=strict(arguments, str))


def _raw(arguments: Arguments, environment: Environment) -> Compiled:
    def text(value: Any) -> str:
        return (value if isinstance(value, bytes) else value.encode()).hex().upper()

    length = 2 * (arguments[0].type.length or 2000)
    return Compiled(type=varchar(min(length, 4000)), value=strict(arguments, text))


def _standard_hash(arguments: Arguments, environment: Environment) -> Compiled:
    """Return the hash of the value's bytes; NULL has one, too, as no one should rely on."""
    first, name = arguments[0], "SHA1"
    if len(arguments) > 1:
        name = str(arguments[1].now())
    if first.type.name in LOBS or first.type.name in ("LONG", "LONG RAW"):
        raise OracleError(902, "invalid datatype")
    text = as_text(first, environment)

    def value(row: Sequence[Any]) -> bytes:
        found = first.value(row) if first.type.name == "RAW" else text(row)
        data = found if isinstance(found, bytes) else (found or "").encode()
        return hashlib.new(name.lower(), data, usedforsecurity=False).digest()

    return Compiled(type=Type(name="RAW", length=64), value=value)


def _bits(layout: str) -> tuple[Type, Callable[..., Any]]:
    return Type(name="RAW", length=8), lambda value: struct.pack(layout, value)


_BUILDERS: dict[str, Callable[..., Compiled]] = {
    **BUILDERS,
    "TO_NUMBER": _to_number,
    "TO_CLOB": _to_lob("CLOB"),
    "TO_NCLOB": _to_lob("NCLOB"),
    "TO_BLOB": _to_lob("BLOB"),
    "DBMS_LOB.GETLENGTH": _get_length,
    "LENGTH": _length,
    "NVL": _nvl,
    "DECODE": _decode,
    "LTRIM": _text_function(lambda text, what=" ": text.lstrip(what)),
    "RTRIM": _text_function(lambda text, what=" ": text.rstrip(what)),
    "LOWER": _text_function(str.lower),
    "SUBSTR": _text_function(_substr),
    "RAWTOHEX": _raw,
    "STANDARD_HASH": _standard_hash,
    "ROWIDTOCHAR": _rowid_text,
}
_PLAIN: dict[str, tuple[Type, Callable[..., Any]]] = {
    "CHARTOROWID": (ROWID, Rowid.parse),
    "HEXTORAW": (Type(name="RAW", length=2000), bytes.fromhex),
    "REPLACE": (varchar(4000), lambda text, old, new="": text.replace(old, new) or None),
    "CHR": (varchar(1), lambda code: chr(int(code))),
    "MOD": _number(lambda a, b: a if not b else EXACT.remainder(a, b)),
    "UTL_RAW.CAST_FROM_BINARY_FLOAT": _bits(">f"),
    "UTL_RAW.CAST_FROM_BINARY_DOUBLE": _bits(">d"),
    "DBMS_ROWID.ROWID_OBJECT": _rowid_part(0),
    "DBMS_ROWID.ROWID_RELATIVE_FNO": _rowid_part(1),
    "DBMS_ROWID.ROWID_BLOCK_NUMBER": _rowid_part(2),
}
_OF_DATABASE: dict[str, Type] = {
    "USER": varchar(128),
    "DBTIMEZONE": varchar(6),
    "SYS_CONTEXT": varchar(256),
    "USERENV": varchar(64),
    "DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER": expression_number(),
    "TIMESTAMP_TO_SCN": expression_number(),
}
