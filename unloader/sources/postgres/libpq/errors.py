"""What can go wrong in a session of libpq, in the words of libpq and of the server."""

from __future__ import annotations

import re

_STATED = re.compile(r"[^\s:]+:\s+(?P<state>(?=[A-Z]*[0-9])[0-9A-Z]{5}):\s+(?P<text>.*)")
"""How a server's refusal to connect is told, if it is asked for with its SQLSTATE."""

_UNMET = re.compile(
    r"no password supplied|channel binding|authentication method|GSSAPI|SCRAM|SASL|SSPI|"
    r"certificate file|private key file|authentication response"
)
"""Words of libpq where what the server asks for and what the client has do not fit."""

_SETTINGS = re.compile(r"invalid |missing |could not match |definition of service |syntax error")
"""How libpq's words begin on settings that it does not understand."""


class LibpqError(Exception):
    """An error of a session; its text is one or more lines.

    Attributes:
        sqlstate: The server's code of five characters, empty where it is libpq's own error.
    """

    def __init__(self, text: str, sqlstate: str = "") -> None:
        super().__init__(text.strip())
        self.sqlstate = sqlstate


class ServerError(LibpqError):
    """The server refused a statement.

    Attributes:
        ends_session: The session may have ended with it: its severity is not ERROR, or not known.
    """

    def __init__(self, text: str, sqlstate: str = "", *, ends_session: bool = True) -> None:
        super().__init__(text, sqlstate)
        self.ends_session = ends_session


class Broken(LibpqError):
    """The connection is lost, or could not be made; with a SQLSTATE where the server said why."""


class Malformed(LibpqError):
    """What came through COPY is not of the form that was asked for."""


class BadSetting(LibpqError):
    """The settings of the connection cannot lead to one, whatever becomes of the server."""


class Cancelled(LibpqError):
    """The call was stopped by `Connection.cancel`."""

    def __init__(self) -> None:
        super().__init__("the call was cancelled")


def refused(text: str) -> LibpqError:
    """Return the error of a connection that was not made, of what libpq says of it.

    Args:
        text: In libpq's verbose form, one or more lines for each host that was tried.
    """
    if _SETTINGS.match(text):
        return BadSetting(text)
    stated = list(_STATED.finditer(text))
    if stated:
        return Broken(stated[-1]["text"], stated[-1]["state"])
    unmet = [line for line in text.splitlines() if _UNMET.search(line)]
    return BadSetting(unmet[-1]) if unmet else Broken(text)
