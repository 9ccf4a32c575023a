"""Hides passwords in every text that leaves the program.

There are two lines of defence. The first is not here: no message shows an argument that was
refused, because it may hold anything. This module is the second. `redact` hides

- the secrets of this process at any place: values of variables that are named after a secret
  (`is_secret`), and secrets from a file, from a catalog's configuration or from the prompt, which
  `learn` receives;
- all text in the form of a password, known or not: `//user:password@`, `user/password@`,
  `password=...`, `IDENTIFIED BY ...`.

Standard output and standard error pass it as a whole, in the workers, too (`guard_streams`); so a
driver's warning and a traceback do. Files are written by those who know their fields: texts pass
`redact`, names and SQL must stay exact, since a later run or `verify` reads them.

A secret is searched for without regard to case. One of fewer than `SHORTEST` characters, or of
fewer than `LONG` digits, is not searched for: it would be found in other words and numbers. One of
fewer than `LONG` characters, or of letters alone, is hidden where it is a word for itself. A word
that is shown openly is not hidden (`known_openly`): a password that equals the user's name gains
nothing from unreadable output.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"

PASSWORD_VARIABLE = "UNLOADER_PASSWORD"
WALLET_PASSWORD_VARIABLE = "UNLOADER_WALLET_PASSWORD"
TOKEN_VARIABLE = "UNLOADER_ORACLE_TOKEN"
PARQUET_KEY_VARIABLE = "UNLOADER_PARQUET_KEY"
MASKING_KEY_VARIABLE = "UNLOADER_MASKING_KEY_"
"""How the names of the variables begin that hold the keys of masks."""
VARIABLES = (
    PASSWORD_VARIABLE,
    WALLET_PASSWORD_VARIABLE,
    TOKEN_VARIABLE,
    PARQUET_KEY_VARIABLE,
    "PGPASSWORD",
    "MYSQL_PWD",
)
"""Variables whose whole value is a secret that this program or a driver uses; `is_secret` knows
others by their names."""

SHORTEST = 4
LONGEST_SECRET = 65_536
"""Characters that are read of a file with a secret; there may be no end to it."""
LONG = 8

_OUR_WORDS = frozenset(
    (
        "oracle",
        "postgres",
        "postgresql",
        "duckdb",
        "sqlite",
        "mysql",
        "mariadb",
        "adbc",
        "odbc",
        "unloader",
    )
) | {"password", "none"}
"""Words of the messages and URLs of this program."""

_SECRET = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret|token|(?<!load)credential|authorization|webhook"
    r"|(?<![a-z])(?:pass|pw|sas|sig|signature)|(?:db|my|pg|sql|ssl|user|root|admin|store)pass"
    r"|(?:access|account|api|auth|encryption|hmac|mask|masking|master|parquet|private|secret|shared"
    r"|signing|ssl|storage)[_-]?key)s?\d{0,3}"
)
"""A part of each name of a secret, as a variable or as a field in a text."""
_ABOUT = (
    r"_?(?:file|path|dir|directory|keyring|prompt)|_(?:name|id|user|host|port|type|kind|count|"
    r"provider|service|age|ttl|timeout|length|size|limit)"
)
"""What such a name ends with if it is about a secret, such as the place of one."""
_VARIABLE = re.compile(rf"(?i){_SECRET}|_(?:headers|connection_string)$")
_NO_SECRET = re.compile(rf"(?i)(?:{_ABOUT})$|^(?:OLD)?PWD$|^UNLOADER_")
"""The variables of options have secrets only if `VARIABLES` lists them."""

_QUOTED = r"""\\"[^"]*"|"(?:[^"\\]|\\.)*"|'[^']*'"""
_BARE = r"""(?:\\.|[^\s;&'",)\\])+"""
_SCHEME = r"(?:(?:Bearer|Basic)\s+)?"
_NAME = rf"{_SECRET}(?:(?!(?:{_ABOUT})\b)_\w{{1,40}})?"
_FIELD = re.compile(
    rf"(?i)((?<!/){_NAME}(?:\\?[\"'])?\s{{0,8}}=\s{{0,8}}{_SCHEME})({_QUOTED}|\{{[^}}]*\}}|{_BARE})"
)
"""`password=...`"""
_MEMBER = re.compile(rf"(?i)({_NAME}\\?[\"']\s{{0,8}}:\s{{0,8}})({_QUOTED})")
"""`"password": "..."`, as JSON has it; a number there is a number of rows, and stays."""
_HEADER = re.compile(
    r"(?i)((?<![\w-])(?:(?:proxy-)?authorization|(?:\w+-){1,4}(?:key|token|secret|signature))"
    rf":\s{{1,8}}{_SCHEME})([^\s'\"]+)"
)
"""`Authorization: Bearer ...`, as HTTP has it."""
_FIELDS = (_FIELD, _MEMBER, _HEADER)
_FIELD_WORDS = re.compile("pass|pw|secret|token|credential|authoriz|webhook|key|sig|sas")
"""One of them is in each name of such a field."""
_MARK = re.compile(r"\\?[\"']")
_SQL_VALUE = r"""(?:\\"[^"]*"|"[^"]*"|'[^']*'|[^\s,;'"]+)"""
_IDENTIFIED = re.compile(
    rf"(?i)(\bIDENTIFIED\s+BY\s+(?:VALUES\s+)?)({_SQL_VALUE})"
    rf"(?:(\s+REPLACE\s+)({_SQL_VALUE}))?"
)
_SQL_PASSWORD = re.compile(r"(?i)(\bPASSWORD\s+)('[^']*')")

_TOKEN = re.compile(r"\S{1,2000}")
"""A word without blanks, cut far above the length of a URL, to limit the time."""
_USER_PASSWORD = re.compile(r"(:/|//)([^/?#@\s:]{0,128}):(\S+)@")
_PORT = re.compile(r"\d*(?:,[^/@?#\s]*)?(?:/[^@?#\s]*)?[?#]")
"""`//host:5432/db?user=a@b` has a port and a later @, and no password."""
_SCHEMES = r"(?:[A-Za-z][\w+.-]{0,30}:){0,4}"
_USER = r"(?:\"[^\"\s]{1,128}\"|[A-Za-z][\w$#.%\[\]-]{0,127})"
_LOGIN = re.compile(rf"(?<![\w./@%~:+-])({_SCHEMES}{_USER}[/:])(?!/)(\S+)@")
"""`user/password@`, as SQL*Plus takes it, and `user:password@`, both perhaps after a scheme.
Paths that begin with a slash or a dot are not logins."""
_ORACLE_LOGIN = re.compile(rf"(?i)(oracle:/{{1,2}}{_USER}/)[^\s?]+@")

_learned: set[str] = set()
_open_words: set[str] = set()


def learn(secret: str | None) -> None:
    """Hide a secret from now on; each line of it is one."""
    _learned.update(filter(None, (secret or "").splitlines()))


def learn_fields(fields: Mapping[str, object]) -> None:
    """Hide the secrets in a configuration from now on, such as the properties of a catalog."""
    _learned.update(_secrets_in(tuple((name, str(value)) for name, value in fields.items())))


def known_openly(words: Iterable[str | None]) -> None:
    """Do not hide these words, which the user gave in the open, even if one is the password."""
    _open_words.update(word.lower() for word in words if word)


def is_secret(variable: str) -> bool:
    """Return whether a variable of this name holds a secret: ours, a driver's or another's."""
    if variable in VARIABLES or variable.startswith(MASKING_KEY_VARIABLE):
        return True
    return not _NO_SECRET.search(variable) and _VARIABLE.search(variable) is not None


def redact(text: str) -> str:
    """Return the text with `***` in the place of everything that is or looks like a password."""
    folded = text.lower()
    for form, pattern in _patterns(_now(), frozenset(_open_words)):
        if form in folded:
            text = pattern.sub(HIDDEN, text)
    return redact_forms(text)


def redact_forms(text: str) -> str:
    """Return the text without all text in the form of a password."""
    # A plan of 10,000 units has many lines, and few of them anything to look at.
    return "".join(map(_hide_in_line, text.splitlines(keepends=True)))


def holds_field(text: str) -> bool:
    """Return whether a text has `password=...` or the like in it."""
    return any(field.search(text) for field in _FIELDS)


def holds_sql_password(sql: str) -> bool:
    """Return whether a statement has a secret in it, as SET ROLE and ALTER USER may."""
    return redact(sql) != sql


def holds_secret(text: str) -> bool:
    """Return whether a text has a secret that is too long and odd to be there by chance."""
    telling = frozenset(filter(_is_telling, _now()))
    patterns = _patterns(telling, frozenset(_open_words))
    return any(pattern.search(text) for _, pattern in patterns)


class GuardedBytes:
    """Takes encoded text for a guarded stream."""

    def __init__(self, stream: GuardedStream) -> None:
        self._text = stream
        self.flush = stream.flush

    def write(self, data: bytes) -> int:
        self._text.write(bytes(data).decode(self._text.encoding, "backslashreplace"))
        return len(data)


class GuardedStream:
    """A text stream that redacts all written text, without a way around it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            # click asks in this way whether a stream takes bytes.
            raise TypeError("a text stream takes text")
        self._stream.write(redact(text))
        return len(text)

    @property
    def buffer(self) -> GuardedBytes:
        """The same filter for encoded text, which click writes."""
        return GuardedBytes(self)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Return other attributes of the stream; bytes cannot be written past the filter."""
        if name in ("detach", "_stream"):
            raise AttributeError(name)
        return getattr(self._stream, name)


def guard_streams() -> None:
    """Let all text on standard output and standard error pass `redact`; twice does no harm."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, GuardedStream):
            setattr(sys, name, cast(TextIO, GuardedStream(stream)))


def _now() -> frozenset[str]:
    """Return the secrets known now; variables may be set by a prompt."""
    return frozenset(_learned | _secrets_in(tuple(os.environ.items())))


@lru_cache(maxsize=4)
def _secrets_in(fields: tuple[tuple[str, str], ...]) -> frozenset[str]:
    """Return the secrets in named values: variables of the environment, properties of a catalog.

    Paths, numbers and words such as `true` are left out: hiding them would hide them in all texts.
    """
    found = set()
    for name, value in fields:
        if name in VARIABLES or name.startswith(MASKING_KEY_VARIABLE):
            found.add(value)
            continue
        if name.startswith("UNLOADER_"):
            continue
        parts = {match[2].strip("\\\"'") for field in _FIELDS for match in field.finditer(value)}
        logins = (match[3] for match in _USER_PASSWORD.finditer(value))
        parts.update(each for each in logins if not _PORT.match(each))
        if is_secret(name):
            # `CLIENT:SECRET` is the form of a credential of Iceberg's catalogs.
            parts.update((value, *value.splitlines(), value.rpartition(":")[2]))
            if name.endswith("_HEADERS"):
                parts.update(item.partition("=")[2] for item in value.split(","))
        parts.update([unquote(part).rpartition(" ")[2] for part in parts])
        # Short words and paths may be something else.
        for each in parts:
            enough = LONG if each.isalpha() else _shortest(each)
            if len(each) >= enough and not (each.startswith("/") and os.path.exists(each)):
                found.add(each)
    return frozenset(found)


@lru_cache(maxsize=8)
def _patterns(
    secrets: frozenset[str], open_words: frozenset[str]
) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return each form of each secret in lower case, and the pattern that finds it."""
    left_alone = open_words | _OUR_WORDS
    found = {}
    for secret in secrets:
        if len(secret.strip()) < _shortest(secret) or secret.lower() in left_alone:
            continue
        for form in _forms(secret):
            escaped = re.escape(form)
            if not _is_telling(secret):
                # What an escape ends with is not a part of the word: `%3Aword`, `\nword`.
                before = r"(?:(?<![^\W_])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt]))"
                escaped = rf"{before}{escaped}(?![^\W_])"
            found[form.lower()] = re.compile(escaped, re.IGNORECASE)
    # The longest first: one secret may be the beginning of another.
    return tuple(sorted(found.items(), key=lambda item: -len(item[0])))


def _shortest(secret: str) -> int:
    # A short number is the same as many a number of rows, and JSON has to keep those.
    return LONG if secret.strip().isdigit() else SHORTEST


def _is_telling(secret: str) -> bool:
    """Return whether a secret is too long and odd to occur by chance."""
    return len(secret) >= LONG and not secret.isalpha()


def _forms(secret: str) -> set[str]:
    """Return a secret as URLs, JSON, Python and a terminal of another character set write it."""
    return {
        form
        for each in (secret, secret.strip())
        for form in (
            *(each, repr(each)[1:-1], each.encode("ascii", "backslashreplace").decode()),
            quote(each, safe="", errors="surrogateescape"),
            *(way(each, errors="surrogateescape") for way in (quote, quote_plus)),
            *(json.dumps(each, ensure_ascii=ascii)[1:-1] for ascii in (True, False)),
        )
    }


@lru_cache(maxsize=256)
def _hide_in_line(line: str) -> str:
    # Known for the next time: the manifests of a night have the same place of the source.
    if "@" in line:
        line = _TOKEN.sub(_hide_in_token, line)
    folded = line.lower()
    if _FIELD_WORDS.search(folded):
        for field in (*_FIELDS, _SQL_PASSWORD):
            line = field.sub(lambda match: match[1] + _hidden(match[2]), line)
    if "identified" in folded:
        line = _IDENTIFIED.sub(
            lambda match: (
                match[1]
                + _hidden(match[2])
                + (f"{match[3]}{_hidden(match[4])}" if match[3] else "")
            ),
            line,
        )
    return line


def _hidden(value: str) -> str:
    """Return the replacement of a value, in its quotes, so that JSON stays JSON."""
    mark = _MARK.match(value)
    return f"{mark[0]}{HIDDEN}{mark[0]}" if mark else HIDDEN


def _hide_in_token(found: re.Match[str]) -> str:
    token = found[0]
    if "@" not in token:
        return token

    def login(match: re.Match[str]) -> str:
        # `host1:1,host2:2/db?user=a@b`: the text after the comma has a port, too.
        has_port = match[1].endswith(":") and _PORT.match(match[2])
        return match[0] if has_port else f"{match[1]}{HIDDEN}@"

    token = _USER_PASSWORD.sub(
        lambda match: match[0] if _PORT.match(match[3]) else f"{match[1]}{match[2]}:{HIDDEN}@",
        token,
    )
    token = _ORACLE_LOGIN.sub(rf"\1{HIDDEN}@", token)
    return _LOGIN.sub(login, token)
