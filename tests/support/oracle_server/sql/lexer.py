"""Oracle SQL as a list of tokens, with the place of each in the statement."""

from __future__ import annotations

import re
from typing import NamedTuple

from oracle_server.model import OracleError

_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<quoted>"[^"\0]+")
  | (?P<text>[nN]?'(?:[^']|'')*')
  | (?P<name>[^\W\d][\w$\#]*)
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)
  | (?P<bind>:\s*(?:\d+|[^\W\d][\w$\#]*|"[^"]+"))
  | (?P<operator>\|\||<>|!=|\^=|<=|>=|=>|:=|\.\.|[-+*/=<>(),.;@%:])
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTES = {"[": "]", "(": ")", "{": "}", "<": ">"}


class Token(NamedTuple):
    """One token."""

    kind: str
    """name, quoted, text, number, bind, operator or end."""
    value: str
    """Names in upper case, quoted names and texts without their quotes, all else as written."""
    start: int
    stop: int
    """The token is `sql[start:stop]`."""

    def word(self, *values: str) -> bool:
        """Return whether this is one of the given words or operators, unquoted."""
        return self.kind in ("name", "operator") and self.value in values


def tokens(sql: str) -> list[Token]:
    """Return the tokens of a statement; the last is of kind `end`.

    Raises:
        OracleError: ORA-00911 for a character that begins no token, ORA-01756 for an open quote.
    """
    found = []
    at = 0
    while at < len(sql):
        token = _alternative_quote(sql, at) or _next(sql, at)
        if token.kind != "skip":
            found.append(token)
        at = token.stop
    found.append(Token("end", "", len(sql), len(sql)))
    return found


def _next(sql: str, at: int) -> Token:
    match = _TOKEN.match(sql, at)
    if match is None:
        if sql[at] in "'\"":
            raise OracleError(1756, "quoted string not properly terminated", at)
        raise OracleError(911, "invalid character", at)
    kind, written = str(match.lastgroup), match.group()
    value = written
    if kind == "name":
        value = written.upper()
    elif kind == "quoted":
        value = written[1:-1]
    elif kind == "text":
        value = written[written.index("'") + 1 : -1].replace("''", "'")
    elif kind == "bind":
        value = written[1:].strip().strip('"')
    return Token(kind, value, at, match.end())


def _alternative_quote(sql: str, at: int) -> Token | None:
    """Return a text written as q'[...]'."""
    if sql[at] not in "qQ" or sql[at + 1 : at + 2] != "'":
        return None
    if at and (sql[at - 1].isalnum() or sql[at - 1] in "_$#"):
        return None
    opening = sql[at + 2 : at + 3]
    closing = _QUOTES.get(opening, opening) + "'"
    end = sql.find(closing, at + 3)
    if end < 0:
        raise OracleError(1756, "quoted string not properly terminated", at)
    return Token("text", sql[at + 3 : end], at, end + 2)


def compact(sql: str, found: list[Token]) -> str:
    """Return what Oracle names an expression after: its text without blanks, in upper case."""
    return "".join(
        sql[token.start : token.stop]
        if token.kind in ("quoted", "text")
        else sql[token.start : token.stop].upper()
        for token in found
    ).replace('"', "")
