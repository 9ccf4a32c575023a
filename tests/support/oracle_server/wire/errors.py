"""Outcomes of calls, errors, and what a server announces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from oracle_server.model import OracleError, SessionState
from oracle_server.wire.channel import BREAK, RESET, Channel
from oracle_server.wire.oracle_values import NULL, clr, dalc, sb, ub

NO_MORE_ROWS = 1403
CANCELLED = 1013
DEAD_SESSION = frozenset({28, 31, 600, 603, 1012, 1089, 1092, 2396, 3113, 3114, 3135})
"""Codes after which the server closes the connection."""
STATUS_DONE = 0x1
STATUS_TRANSACTION = 0x2
STATUS_DDL = 0x10000
STATUS_ENDED = 0x10005
"""After COMMIT and ROLLBACK."""
_TEXTS = {
    28: "your session has been killed",
    60: "deadlock detected while waiting for resource",
    1013: "user requested cancel of current operation",
    1089: "immediate shutdown or close in progress - no operations are permitted",
    1092: "ORACLE instance terminated. Disconnection forced",
    1403: "no data found",
    1466: "unable to read data - table definition has changed",
    1555: 'snapshot too old: rollback segment number 9 with name "_SYSSMU9_1650507775$" too small',
    1652: "unable to extend temp segment by 128 in tablespace TEMP",
    2396: "exceeded maximum idle time, please connect again",
    3113: "end-of-file on communication channel\nProcess ID: 4711\nSession ID: 42 Serial number: 7",
    3135: "connection lost contact",
    4031: 'unable to allocate 4160 bytes of shared memory ("shared pool","unknown object","x","y")',
    4036: "PGA memory used by the instance exceeds PGA_AGGREGATE_LIMIT",
    8103: "object no longer exists",
    12805: "parallel query server died unexpectedly",
    22924: "snapshot too old",
    30036: "unable to extend segment by 8 in undo tablespace 'UNDOTBS1'",
}
SQL_TYPES = {
    "select": 3,
    "insert": 2,
    "update": 6,
    "delete": 7,
    "plsql": 47,
    "alter session": 42,
    "commit": 44,
    "rollback": 45,
    "ddl": 1,
}
"""Kinds of statements in an OER; CREATE means every DDL."""


class FatalError(OracleError):
    """An error after which the server closes the connection, for any code."""


def known_error(code: int, text: str = "") -> OracleError:
    return OracleError(code, text or _TEXTS.get(code, "error ordered by a test"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an OER reports."""

    call: int = 0
    """Sequence number of the request, which is repeated."""
    sequence: int = 0
    """Calls of the session so far."""
    status: int = STATUS_DONE
    error: OracleError | None = None
    end_of_rows: bool = False
    """ORA-01403 is not an error: it goes without markers."""
    cursor: int = 0
    rows: int = 0
    kind: str = ""
    flags: int = 0
    iterations: int = 0

    def encode(self, field_version: int, *, wide: bool = False) -> bytes:
        """Return message 4; `wide` flags are an integer, not a byte, as Go and Java clients read."""
        code = NO_MORE_ROWS if self.end_of_rows else self.error.code if self.error else 0
        sql_type = SQL_TYPES.get(self.kind, 0)
        parts = [
            b"\x04",
            ub(self.status),
            ub(self.sequence & 0xFFFF),
            ub(self.rows & 0xFFFFFFFF),
            ub(code & 0xFFFF),
            NULL,
            NULL,
            ub(self.cursor),
            sb(self.error.position if self.error else 0),
            bytes((sql_type, 0)),
            ub(self.flags) if wide else bytes((self.flags,)),
            bytes(8),
            NULL,
            bytes((0, self.call)),
            NULL,
            ub(self.iterations),
            NULL,
            bytes(3),
            ub(code),
            ub(self.rows),
        ]
        if field_version >= 14:
            parts += (ub(sql_type), NULL)
        if code:
            parts.append(clr(self._text(code).encode()))
        return b"".join(parts)

    def _text(self, code: int) -> str:
        text = self.error.text if self.error else _TEXTS[code]
        return f"ORA-{code:05d}: {text}\n"


def status(value: int, sequence: int) -> bytes:
    """Return message 9, which ends calls that have nothing to report."""
    return b"\x09" + ub(value) + ub(sequence & 0xFFFF)


def parameters(scn: int, cursor: int, in_transaction: bool) -> bytes:
    numbers = (scn & 0xFFFFFFFF, scn >> 32, cursor, int(in_transaction), 0, 0)
    return b"\x08" + ub(len(numbers)) + b"".join(map(ub, numbers)) + bytes(3)


def version(text: str, number: int, *, bare: bool) -> bytes:
    """Return message 8 of a version call.

    Args:
        number: As in AUTH_VERSION_NO.
        bare: The client takes texts without a second length.
    """
    data = text.encode()
    return b"\x08" + ub(len(data)) + (data if bare else clr(data)) + ub(number)


def login_parameters(pairs: Iterable[tuple[str, str, int]], *, triple: bool) -> bytes:
    """Return message 8 of a login: names, values and flags.

    Args:
        pairs: In order; a name's zero at the end is part of it.
        triple: Outer lengths are three times the real ones, as of a database that converts texts.
    """
    pairs = list(pairs)
    parts = [b"\x08", ub(len(pairs))]
    for name, value, flags in pairs:
        parts += (_text(name, triple), _text(value, triple), ub(flags))
    return b"".join(parts)


def _text(text: str, triple: bool) -> bytes:
    data = text.encode()
    return ub(3 * len(data)) + clr(data) if triple and data else dalc(data)


def send_error(channel: Channel, reply: bytes) -> None:
    """Send a reply with an error: break and reset first, and the client's reset awaited."""
    channel.send_marker(BREAK)
    channel.send_marker(RESET)
    channel.read_marker(RESET)
    channel.send_reply([reply])


def answer_break(channel: Channel, reply: bytes) -> None:
    """Answer a client that has broken in: its break back, both resets, then the reply."""
    channel.send_marker(BREAK)
    channel.read_marker(RESET)
    channel.send_marker(RESET)
    channel.send_reply([reply])


Value = tuple[str | None, bytes | None, int]
"""Text, bytes and keyword number, or None."""
_ZONE_TEXT = re.compile(r"([+-]?)(\d\d?):(\d\d)")
_ZONE_KEY = 163
_SCHEMA_KEY = 168
_USER_KEY = 170
_PRIORITY_KEY = 199


def session_return(values: Iterable[Value]) -> bytes:
    """Return message 23 with operation 5: what of the session has changed."""
    values = list(values)
    parts = [b"\x17\x05\x01\x01\x10", ub(len(values)), b"\x16"]
    for text, data, key in values:
        parts += (dalc((text or "").encode()), dalc(data or b""), ub(key))
    return b"".join((*parts, b"\x00"))


def login_return(user_id: int, nls: Iterable[tuple[str, int]] = ()) -> bytes:
    """Return message 23 as it comes after a login: time zone, user, transaction priority.

    Args:
        nls: Values and keywords of language settings, for clients that get them.
    """
    user = bytes(3) + b"\x01" + user_id.to_bytes(4, "big")
    return session_return(
        (
            *((None, text.encode(), key) for text, key in nls),
            (None, zone_image(0, 0), _ZONE_KEY),
            (None, user, _USER_KEY),
            ("NONE\0\0", None, _PRIORITY_KEY),
        )
    )


def zone_image(hours: int, minutes: int) -> bytes:
    return bytes((0x80, 0, 0, 0, 0x3C + hours, 0x3C + minutes, 0x3C, 0x80, 0, 0, 0))


def session_changes(state: SessionState, schema: str, zone: str | None) -> Iterator[bytes]:
    """Yield the message if a statement has changed the session."""
    values: list[Value] = []
    if state.schema != schema:
        values.append((state.schema, None, _SCHEMA_KEY))
    now = state.settings.get("TIME_ZONE")
    found = _ZONE_TEXT.search(now or "")
    if now != zone and found:
        sign = -1 if found[1] == "-" else 1
        values.append((None, zone_image(sign * int(found[2]), sign * int(found[3])), _ZONE_KEY))
    if values:
        yield session_return(values)
