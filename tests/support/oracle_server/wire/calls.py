"""Function calls of clients taken apart: execute, fetch, re-execute, LOB operations, logins.

Every field is read, whether the server needs it or not: requests do not say how long they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oracle_server.wire.binds import BindType, read_rows, read_types
from oracle_server.wire.reader import Reader
from oracle_server.wire.rows.lobs import CREATE_TEMP, WRITE, Locators

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
LOGIN_TWO = 115
LOGIN_ONE = 118
PING = 147
SESSION_RELEASE = 163
PIPELINE_END = 200

OPTION_PARSE = 0x1
OPTION_BIND = 0x8
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
        """Tell whether an option is set."""
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
    """Read function 94."""
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
    reader: Reader,
    function: int,
    types_of: dict[int, tuple[BindType, ...]],
    locators: Locators,
) -> Execute:
    """Read functions 78 and 4, which name a cursor whose binds are known.

    Args:
        reader: After the head.
        function: One of the two.
        types_of: Bind types of every open cursor.
        locators: Of the connection.
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
    """Read functions 118 and 115."""
    has_user = reader.u8()
    length = reader.ub()
    mode = reader.ub()
    reader.skip("b")
    count = reader.ub()
    reader.skip("bb")
    user = reader.first_text(length) if has_user and length else ""
    return LoginRequest(user=user, mode=mode, pairs=reader.pairs(count))
