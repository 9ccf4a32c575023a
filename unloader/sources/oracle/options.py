"""The options that only Oracle sources know."""

from __future__ import annotations

import re
from functools import partial

from unloader.model import SessionOptions, ValueOptions
from unloader.redaction import TOKEN_VARIABLE, WALLET_PASSWORD_VARIABLE
from unloader.request.options.kinds import (
    FLAG,
    SECONDS,
    STATEMENTS,
    Choice,
    Parsed,
    PathText,
    Whole,
)
from unloader.request.options.load import MAX_DB_LOAD
from unloader.request.options.option import CONNECTING, REACHING, READING, Option

WALLET_PASSWORD_FILE = "UNLOADER_WALLET_PASSWORD_FILE"
TOKEN_FILE = "UNLOADER_ORACLE_TOKEN_FILE"
TOKEN_KEY_FILE = "UNLOADER_ORACLE_TOKEN_KEY_FILE"

VARIABLES = (
    WALLET_PASSWORD_VARIABLE,
    WALLET_PASSWORD_FILE,
    TOKEN_VARIABLE,
    TOKEN_FILE,
    TOKEN_KEY_FILE,
)
"""Variables without an option, which a connection reads."""

MAX_DECIMAL = 38
"""Digits of the widest decimal that every reader of Parquet knows."""

_session = partial(Option, section="Session", owner=SessionOptions)
_values = partial(
    Option,
    section="Selection",
    commands=READING,
    effect="changes",
    scope="table",
    owner=ValueOptions,
    formats=("parquet",),
)


def _number_form(text: str) -> str:
    form = text.strip().lower().replace(" ", "")
    if form in ("string", "double"):
        return form
    match = re.fullmatch(r"decimal\((\d+),(\d+)\)", form)
    if match is None:
        raise ValueError(
            f"{text!r} is not a form; write string, double or for instance decimal(38,10)"
        )
    precision, scale = int(match[1]), int(match[2])
    if not 1 <= precision <= MAX_DECIMAL or scale > precision:
        raise ValueError(
            f"{text!r} is not a decimal: give 1 to {MAX_DECIMAL} digits, and a scale of at "
            "most as many"
        )
    return form


def _library(directory: str) -> str:
    return "" if directory == "auto" else directory


SESSION = (
    _session(
        name="session-sql",
        example="\"ALTER SESSION SET TIME_ZONE = 'UTC'\"",
        kind=STATEMENTS,
        multiple=True,
        commands=REACHING,
        effect="selects",
        secret=True,
        field="source.session.session_sql",
        help="Run this statement in every session before it reads. Repeat it for more "
        "statements. Only Oracle.",
    ),
    _session(
        name="call-timeout",
        example="60",
        kind=SECONDS,
        commands=CONNECTING,
        effect="none",
        field="source.session.call_timeout_seconds",
        help="Longest wait in seconds for an answer from the database; 0 sets no limit. "
        "Only Oracle.",
    ),
    _session(
        name="client-library",
        example="/opt/oracle/instantclient",
        kind=PathText("DIR"),
        commands=CONNECTING,
        effect="none",
        field="source.session.client_library",
        shape=_library,
        help="Connect through Oracle's client library in DIR (thick mode); auto searches the "
        "usual places. Only Oracle.",
    ),
    _session(
        name="scn",
        example="8123456789",
        kind=Whole(1),
        commands=READING,
        effect="selects",
        field="source.session.scn",
        help="Read at this system change number instead of the current one. Only Oracle.",
    ),
    _session(
        name="fetch",
        example="tuples",
        kind=Choice("auto", "arrow", "tuples", "native"),
        commands=READING,
        effect="none",
        field="source.session.fetch",
        record="fetch",
        help="Let the driver build columns (arrow), build columns from rows of values (tuples), "
        "or decode the server's responses in C++ (native). auto uses native if "
        "--confirm-fetch has found equal rows on this server. Only Oracle.",
    ),
    _session(
        name="confirm-fetch",
        kind=FLAG,
        commands=READING,
        effect="none",
        field="source.session.confirm_fetch",
        help="Before the run, fetch rows with the native fetch and with the driver, and compare "
        "every cell. If all cells are equal, later runs on this server use the native fetch. "
        "Only Oracle.",
    ),
    _session(
        name="parallel-query",
        kind=FLAG,
        commands=READING,
        effect="none",
        field="source.session.parallel_query",
        help="Let the database use parallel query for the statements of the run. Only Oracle.",
    ),
    _session(
        name="direct-read",
        kind=FLAG,
        opposite=True,
        commands=READING,
        effect="none",
        field="source.session.direct_read",
        help="Ask for direct path reads, which bypass the buffer cache. Only Oracle.",
    ),
)

VALUES = (
    _values(
        name="number-without-precision",
        example="'decimal(38,10)'",
        kind=Parsed("FORM", _number_form),
        field="values.number_without_precision",
        record="number_without_precision",
        help="In Parquet, write a NUMBER without precision as exact text, as a decimal(p,s) that "
        "must fit every value, or as a double, which may round. Only Oracle.",
    ),
    _values(
        name="nanoseconds",
        example="timestamp",
        kind=Choice("string", "timestamp"),
        field="values.nanoseconds",
        record="nanoseconds",
        help="In Parquet, write timestamps with 7 to 9 digits as exact text, or as nanoseconds, "
        "which end in 2262. Only Oracle.",
    ),
    _values(
        name="zone-columns",
        kind=FLAG,
        field="values.zone_columns",
        record="zone_columns",
        help="In Parquet, add a column with the zone of each timestamp with time zone. "
        "Only Oracle.",
    ),
)

OPTIONS = (*VALUES, *SESSION, MAX_DB_LOAD)
