"""Calls of a client as it sends them: statements, bind values, and what travels with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oracle_server.model import OracleError
from oracle_server.wire.lobs import CREATE_TEMP, WRITE, Locators
from oracle_server.wire.oracle_values import decode_bind, ub


class Reader:
    """The bytes of one request; more are fetched when those at hand do not do."""

    def __init__(self, data: bytes, more: Callable[[], bytes]) -> None:
        """Start with a request's first payload; `more` returns the payload of its next packet."""
        self.bare_texts = False
        """Texts whose length came earlier have no second length before them (some Java clients)."""
        self._data = data
        self._more = more
        self._position = 0

    @property
    def left(self) -> bytes:
        """Received and unread bytes."""
        return self._data[self._position :]

    def raw(self, length: int) -> bytes:
        """Return that many bytes."""
        end = self._position + length
        while len(self._data) < end:
            self._data = self._data[self._position :] + self._more()
            end -= self._position
            self._position = 0
        data = self._data[self._position : end]
        self._position = end
        return data

    def u8(self) -> int:
        return self.raw(1)[0]

    def ub(self) -> int:
        """Return an integer with its length before it; the length's top bit is the sign."""
        length = self.u8()
        value = int.from_bytes(self.raw(length & 0x7F), "big")
        return -value if length & 0x80 else value

    def skip(self, pattern: str) -> None:
        """Read over parts: `b` a byte, `u` an integer with a length."""
        for part in pattern:
            if part == "b":
                self.u8()
            else:
                self.ub()

    def terminated(self) -> bytes:
        """Return the bytes up to a zero, which is read too."""
        data = bytearray()
        while byte := self.u8():
            data.append(byte)
        return bytes(data)

    def clr(self) -> bytes | None:
        """Return a byte string with its length before it; None is NULL."""
        length = self.u8()
        if length in (0, 0xFF):
            return None
        if length != 0xFE:
            return self.raw(length)
        pieces = []
        while size := self.ub():
            pieces.append(self.raw(size))
        return b"".join(pieces)

    def dalc(self) -> bytes | None:
        """Return a byte string with two lengths before it."""
        return self.clr() if self.ub() else None

    def text(self, length: int) -> str:
        """Return a text whose length came earlier in the request; none is read for 0."""
        if self.bare_texts:
            return self.raw(length).decode()
        return (self.clr() or b"").decode() if length else ""

    def first_text(self, length: int) -> str:
        """Return the first text of a connection, which shows whether its texts are bare.

        A client leaves the length out when its character set is the database's (JDBC).
        """
        first = self.raw(1)
        self._position -= 1
        self.bare_texts = first[0] not in (length, 0xFE)
        return self.text(length)

    def pairs(self, count: int) -> dict[str, str]:
        """Return keys and their values, without the zeros that some keys end in."""
        found = {}
        for _ in range(count):
            key = (self.dalc() or b"").decode().rstrip("\0")
            found[key] = (self.dalc() or b"").decode()
            self.ub()
        return found


ROW = 7
_BIND_IN = 32
_ARRAY = 0x40
_CURSOR = 102
_OBJECT = 109
_BOOLEAN = 252
_BOOLEAN_NULL = 0xFD
_LOBS = frozenset({112, 113, 114})
_WITH_LOCATOR = frozenset({119, 127})
_LONGEST = 32767
_COLLATION_VERSION = 8


class BindType(NamedTuple):
    """The descriptor of a bind variable or a define."""

    number: int
    size: int
    form: int
    is_array: bool
    prefetch: int = 0
    """Characters or bytes of a LOB that are to come with its locator."""


def read_types(reader: Reader, count: int, field_version: int) -> tuple[BindType, ...]:
    return tuple(_read_type(reader, field_version) for _ in range(count))


def _read_type(reader: Reader, field_version: int) -> BindType:
    number, flags, _, _ = reader.raw(4)
    size = reader.ub()
    reader.skip("uu")
    reader.dalc()
    reader.skip("uu")
    form = reader.u8()
    prefetch = reader.ub()
    if field_version >= _COLLATION_VERSION:
        reader.skip("u")
    return BindType(number, size, form, bool(flags & _ARRAY), prefetch)


def read_rows(
    reader: Reader, types: tuple[BindType, ...], count: int, locators: Locators, *, is_plsql: bool
) -> tuple[tuple[Any, ...], ...]:
    """Read `count` rows of values; long ones of SQL statements stand after the others."""
    return tuple(_read_row(reader, types, locators, is_plsql) for _ in range(count))


def _read_row(
    reader: Reader, types: tuple[BindType, ...], locators: Locators, is_plsql: bool
) -> tuple[Any, ...]:
    if reader.u8() != ROW:
        raise OracleError(3120, "two-task conversion routine: integer overflow")
    late = [not is_plsql and not each.is_array and each.size > _LONGEST for each in types]
    values: dict[int, Any] = {}
    for now in (False, True):
        for index, each in enumerate(types):
            if late[index] != now:
                continue
            if each.is_array:
                values[index] = [_read(reader, each, locators) for _ in range(reader.ub())]
            else:
                values[index] = _read(reader, each, locators)
    return tuple(values[index] for index in range(len(types)))


def _read(reader: Reader, kind: BindType, locators: Locators) -> Any:
    if kind.number in _LOBS:
        locator = reader.dalc()
        return None if locator is None else locators.value(locator)
    if kind.number == _BOOLEAN:
        length = reader.u8()
        data = reader.raw(1 if length == _BOOLEAN_NULL else length)
        return None if length == _BOOLEAN_NULL else decode_bind(data or b"\0", kind.number)
    if kind.number in _WITH_LOCATOR:
        reader.dalc()
    elif kind.number in (_CURSOR, _OBJECT):
        raise OracleError(932, f"inconsistent data types: bind of type {kind.number}")
    return decode_bind(reader.clr(), kind.number, kind.form)


def bind_directions(count: int) -> bytes:
    """Return message 0B: every bind variable of the block goes in."""
    numbers = (ub(count & 0xFF), ub(count >> 8), ub(1), bytes(3))
    return b"\x0b\x01" + b"".join(numbers) + bytes((_BIND_IN,)) * count


FUNCTION = 3
PIGGYBACK = 17
ONE_WAY = 26
REEXECUTE = 4
FETCH = 5
LOGOFF = 9
COMMIT = 14
ROLLBACK = 15
VERSION = 59
REEXECUTE_AND_FETCH = 78
EXECUTE = 94
LOB_OPERATION = 96
LOGIN_ONE = 118
PING = 147
PIPELINE_END = 200
OPTION_DEFINE = 0x10
OPTION_EXECUTE = 0x20
OPTION_FETCH = 0x40
OPTION_COMMIT = 0x100
OPTION_NOT_PLSQL = 0x8000
_REEXECUTE_COMMIT = 0x1
_TOKEN_VERSION = 18
_SIGNATURE_VERSION = 8
_CHUNK_VERSION = 9
_VERSION_FORMAT_VERSION = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What every call starts with."""

    function: int
    call: int
    """Sequence number, one byte."""
    token: int = 0
    """Of a call in a pipeline."""

    @classmethod
    def read(cls, reader: Reader, field_version: int) -> Head:
        """Read what follows the message's type."""
        function, call = reader.raw(2)
        token = reader.ub() if field_version >= _TOKEN_VERSION else 0
        return cls(function=function, call=call, token=token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute:
    """Functions 94, 78 and 4."""

    options: int
    cursor: int
    """Id of an open cursor, or 0."""
    statement: str | None
    """None: the cursor's own."""
    rows: int
    """Rows wanted with the reply."""
    bind_types: tuple[BindType, ...] | None = None
    """None: those the cursor has from before."""
    bind_rows: tuple[tuple[Any, ...], ...] = ()
    defines: tuple[int, ...] | None = None
    """Type number of each column, of an execute that defines."""
    prefetches: tuple[int, ...] = ()
    """How much of each column's LOBs is to come with their locators."""

    def has(self, option: int) -> bool:
        return bool(self.options & option)


@dataclass(frozen=True, slots=True, kw_only=True)
class LobOperation:
    """Function 96."""

    operation: int
    locator: bytes
    offset: int
    destination_offset: int
    amount: int
    has_amount: bool
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRequest:
    """Functions 118 and 115."""

    user: str
    mode: int
    pairs: dict[str, str]


def read_execute(reader: Reader, field_version: int, locators: Locators) -> Execute:
    options = reader.ub()
    cursor = reader.ub()
    reader.skip("b")
    statement_length = reader.ub()
    reader.skip("bubbu")
    rows = reader.ub()
    reader.skip("ub")
    binds = reader.ub()
    reader.skip("bbbbbb")
    defines = reader.ub()
    reader.skip("ubbbubuubub")
    if field_version >= _SIGNATURE_VERSION:
        reader.skip("bubub")
    if field_version >= _CHUNK_VERSION:
        reader.skip("bu")
    statement = reader.text(statement_length) if statement_length else None
    numbers = [reader.ub() for _ in range(13)]
    if options & OPTION_DEFINE:
        types = read_types(reader, defines, field_version)
        return Execute(
            options=options,
            cursor=cursor,
            statement=statement,
            # Java clients say it here and leave the other one zero.
            rows=rows or numbers[1],
            defines=tuple(each.number for each in types),
            prefetches=tuple(each.prefetch for each in types),
        )
    types = read_types(reader, binds, field_version)
    executions = 1 if numbers[7] else max(numbers[1], 1)
    is_plsql = not options & OPTION_NOT_PLSQL
    bound = read_rows(reader, types, executions, locators, is_plsql=is_plsql) if binds else ()
    return Execute(
        options=options,
        cursor=cursor,
        statement=statement,
        rows=rows,
        bind_types=types,
        bind_rows=bound or ((),) * executions,
    )


def read_reexecute(
    reader: Reader, function: int, types_of: dict[int, tuple[BindType, ...]], locators: Locators
) -> Execute:
    """Read functions 78 and 4, which name a cursor whose binds are known.

    Args:
        types_of: Bind types of every open cursor.
    """
    cursor = reader.ub()
    number = reader.ub()
    reader.ub()
    commit = reader.ub() & _REEXECUTE_COMMIT
    fetches = function == REEXECUTE_AND_FETCH
    types = types_of.get(cursor, ())
    executions = 1 if fetches else max(number, 1)
    rows = read_rows(reader, types, executions, locators, is_plsql=False) if types else ()
    return Execute(
        options=OPTION_EXECUTE
        | (OPTION_FETCH if fetches else 0)
        | (OPTION_COMMIT if commit else 0),
        cursor=cursor,
        statement=None,
        rows=number if fetches else 0,
        bind_rows=rows or ((),) * executions,
    )


def read_fetch(reader: Reader) -> tuple[int, int]:
    """Read function 5 and return cursor id and rows wanted."""
    return reader.ub(), reader.ub()


def read_version(reader: Reader, field_version: int) -> None:
    """Read function 59, which asks for the server's version."""
    reader.skip("bubb")
    if field_version >= _VERSION_FORMAT_VERSION:
        reader.skip("u")


def read_lob_operation(reader: Reader) -> LobOperation:
    """Read function 96 as a call; as a piggyback it only frees."""
    reader.skip("b")
    length = reader.ub()
    reader.skip("buuubbb")
    operation = reader.ub()
    reader.skip("bb")
    offset = reader.ub()
    destination_offset = reader.ub()
    has_amount = bool(reader.u8())
    reader.raw(6)
    locator = reader.raw(length)
    if operation == CREATE_TEMP:
        reader.ub()
    data = b""
    if operation == WRITE:
        reader.skip("b")
        data = reader.clr() or b""
    return LobOperation(
        operation=operation,
        locator=locator,
        offset=offset,
        destination_offset=destination_offset,
        amount=reader.ub() if has_amount else 0,
        has_amount=has_amount,
        data=data,
    )


def read_login(reader: Reader) -> LoginRequest:
    has_user = reader.u8()
    length = reader.ub()
    mode = reader.ub()
    reader.skip("b")
    count = reader.ub()
    reader.skip("bb")
    user = reader.first_text(length) if has_user and length else ""
    return LoginRequest(user=user, mode=mode, pairs=reader.pairs(count))


CLOSE_CURSORS = 105
CANCEL_CURSORS = 120
END_TO_END = 135
SCHEMA = 152
KEY_VALUES = 154
SESSION_STATE = 176
PIPELINE_BEGIN = 199
ALTER_SESSION = 204


@dataclass(slots=True, kw_only=True)
class Piggybacks:
    """The requests in the piggybacks of one call."""

    cursors: list[int] = field(default_factory=list)
    """To be closed."""
    attributes: dict[str, str] = field(default_factory=dict)
    """By the name of the field of SessionState."""
    schema: str = ""
    locators: list[bytes] = field(default_factory=list)
    """Operands of LOB operations: locators to free, one after the other."""
    begins_pipeline: bool = False

    def read(self, reader: Reader, field_version: int) -> None:
        """Read one piggyback, its type byte already read.

        Raises:
            NotImplementedError: A function that is not known here; nothing after it can be read.
        """
        function = Head.read(reader, field_version).function
        read = _READERS.get(function)
        if read is None:
            raise NotImplementedError(f"piggyback {function}")
        read(self, reader)


def _close_cursors(found: Piggybacks, reader: Reader) -> None:
    reader.skip("b")
    found.cursors += [reader.ub() for _ in range(reader.ub())]


def _cancel_cursors(found: Piggybacks, reader: Reader) -> None:
    """Read over cursors that will not be fetched from any more, but may be executed again."""
    reader.skip("b")
    for _ in range(reader.ub()):
        reader.ub()


def _end_to_end(found: Piggybacks, reader: Reader) -> None:
    reader.skip("bbu")
    lengths = {}
    for name in ("client_identifier", "module", "action"):
        lengths[name] = _length(reader)
    reader.skip("bubu")
    lengths["client_info"] = _length(reader)
    reader.skip("bubu")
    lengths["database_operation"] = _length(reader)
    for name, length in lengths.items():
        if length is not None:
            found.attributes[name] = reader.text(length)


def _length(reader: Reader) -> int | None:
    """Return the length of an attribute that is changed, else None."""
    is_set, length = reader.u8(), reader.ub()
    return length if is_set else None


def _schema(found: Piggybacks, reader: Reader) -> None:
    reader.skip("b")
    found.schema = (reader.dalc() or b"").decode()


def _key_values(found: Piggybacks, reader: Reader) -> None:
    reader.skip("b")
    length = reader.ub()
    reader.skip("b")
    count = reader.ub()
    reader.skip("ub")
    reader.text(length)
    reader.pairs(count)


def _session_state(found: Piggybacks, reader: Reader) -> None:
    reader.skip("u")


def _begin_pipeline(found: Piggybacks, reader: Reader) -> None:
    reader.skip("ubb")
    found.begins_pipeline = True


def _alter_session(found: Piggybacks, reader: Reader) -> None:
    reader.skip("ub")
    reader.pairs(reader.ub())


def _free_locators(found: Piggybacks, reader: Reader) -> None:
    found.locators.append(read_lob_operation(reader).locator)


_READERS: dict[int, Callable[[Piggybacks, Reader], None]] = {
    LOB_OPERATION: _free_locators,
    CLOSE_CURSORS: _close_cursors,
    CANCEL_CURSORS: _cancel_cursors,
    END_TO_END: _end_to_end,
    SCHEMA: _schema,
    KEY_VALUES: _key_values,
    SESSION_STATE: _session_state,
    PIPELINE_BEGIN: _begin_pipeline,
    ALTER_SESSION: _alter_session,
}
