"""What a server says of the session unasked: message 23, after logins and ALTER SESSION."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from oracle_server.model import SessionState
from oracle_server.wire.values.forms import dalc, ub

Value = tuple[str | None, bytes | None, int]
"""Text, bytes and keyword number; None where there is none."""

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
        user_id: Of the user in the dictionary.
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
    """Return a time zone's offset as the message has it."""
    return bytes((0x80, 0, 0, 0, 0x3C + hours, 0x3C + minutes, 0x3C, 0x80, 0, 0, 0))


def session_changes(state: SessionState, schema: str, zone: str | None) -> Iterator[bytes]:
    """Yield the message if a statement has changed the session.

    Args:
        state: After the statement.
        schema: Current schema before it.
        zone: TIME_ZONE before it.
    """
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
