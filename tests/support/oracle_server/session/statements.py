"""Statements that change nothing but the session: ALTER SESSION, transactions, a few blocks."""

from __future__ import annotations

import re
from typing import Any

from oracle_server.model import Answer, OracleError, SessionState
from oracle_server.sql.lexer import Token

_KNOWN = (
    "NLS_", "OPTIMIZER_", "PARALLEL_", "STATISTICS_LEVEL", "CURSOR_SHARING", "TIME_ZONE",
    "DB_FILE_MULTIBLOCK_READ_COUNT", "ISOLATION_LEVEL", "EVENTS", "TRACEFILE_IDENTIFIER",
    "SQL_TRACE", "WORKAREA_SIZE_POLICY", "SORT_AREA_SIZE", "RESUMABLE", "DDL_LOCK_TIMEOUT", "_",
    "CONTAINER", "EDITION", "ERROR_ON_OVERLAP_TIME", "INMEMORY_QUERY",
)  # fmt: skip
_SETTING = re.compile(
    r"""\s*("[^"]+"|[\w$#]+)\s*=\s*('(?:[^']|'')*'|"[^"]*"|[-+\w$#.:]+)\s*""", re.DOTALL
)
_PARALLEL = re.compile(
    r"(ENABLE|DISABLE|FORCE)\s+PARALLEL\s+(QUERY|DML|DDL)(\s+PARALLEL\s+\d+)?\s*$"
)
_CALL = re.compile(
    r"\s*(?:SYS\.)?([A-Z_$#0-9]+\.[A-Z_$#0-9]+)\s*(?:\((.*)\))?\s*$", re.DOTALL | re.I
)
_ARGUMENT = re.compile(
    r"\s*(?:\w+\s*=>\s*)?('(?:[^']|'')*'|:\s*\w+|NULL|[-+\w.]+)\s*(?:,|$)", re.IGNORECASE
)


def alter_session(session: SessionState, sql: str, users: dict[str, Any]) -> Answer:
    """Take over ALTER SESSION into the session's settings.

    Raises:
        OracleError: ORA-00922 or ORA-02248 for what is no setting, ORA-01435 for an unknown schema.
    """
    body = re.sub(r"(?is)^\s*ALTER\s+SESSION\s+", "", sql).strip().rstrip(";")
    parallel = _PARALLEL.match(body.upper())
    if parallel:
        session.settings[f"PARALLEL {parallel[2]}"] = parallel[1]
        return Answer(kind="alter session")
    match = re.match(r"(?i)SET\s+", body)
    if match is None:
        raise OracleError(922, "missing or invalid option")
    at = match.end()
    while at < len(body):
        setting = _SETTING.match(body, at)
        if setting is None:
            raise OracleError(922, "missing or invalid option", at)
        _set(session, setting[1].strip('"').upper(), setting[2], users)
        at = setting.end()
    return Answer(kind="alter session")


def _set(session: SessionState, name: str, written: str, users: dict[str, Any]) -> None:
    value = written[1:-1].replace("''", "'") if written[0] in "'\"" else written
    if name == "CURRENT_SCHEMA":
        schema = value if written[0] == '"' else value.upper()
        if schema not in users:
            raise OracleError(1435, "user does not exist")
        session.schema = schema
        return
    if not name.startswith(_KNOWN):
        raise OracleError(2248, "invalid option for ALTER SESSION")
    if name == "TIME_ZONE" and value.upper() == "LOCAL":
        value = "+00:00"
    session.settings[name] = value


def run_block(session: SessionState, sql: str, found: list[Token], binds: list[Any]) -> Answer:
    """Run a PL/SQL block of calls that set the session's identity.

    Raises:
        OracleError: ORA-06550 for anything else.
    """
    body = re.sub(r"(?is)^\s*(CALL|BEGIN)\s", "", sql.strip().rstrip("/").strip())
    body = re.sub(r"(?is)\bEND\s*;?\s*$", "", body)
    values = iter(binds)
    for statement in _statements(body):
        if statement.upper() == "NULL":
            continue
        call = _CALL.match(statement)
        if call is None:
            raise _undeclared(statement)
        arguments = [_argument(text, values) for text in _ARGUMENT.findall(call[2] or "")]
        _called(session, call[1].upper(), arguments)
    return Answer(kind="plsql")


def _statements(body: str) -> list[str]:
    parts = re.findall(r"(?:'(?:[^']|'')*'|[^;'])+", body)
    return [part.strip() for part in parts if part.strip()]


def _argument(text: str, values: Any) -> Any:
    if text.startswith(":"):
        return next(values, None)
    return None if text.upper() == "NULL" else text.strip("'").replace("''", "'")


def _called(session: SessionState, name: str, arguments: list[Any]) -> None:
    first = str(arguments[0] or "") if arguments else ""
    if name == "DBMS_APPLICATION_INFO.SET_MODULE":
        session.module = first
        session.action = str(arguments[1] or "") if len(arguments) > 1 else ""
    elif name == "DBMS_APPLICATION_INFO.SET_ACTION":
        session.action = first
    elif name == "DBMS_APPLICATION_INFO.SET_CLIENT_INFO":
        session.client_info = first
    elif name in ("DBMS_SESSION.SET_IDENTIFIER", "DBMS_SESSION.CLEAR_IDENTIFIER"):
        session.client_identifier = first
    elif name == "DBMS_SESSION.SET_NLS" and len(arguments) == 2:
        session.settings[first.upper()] = str(arguments[1]).strip("'")
    elif not name.startswith(("DBMS_SESSION.", "DBMS_OUTPUT.")):
        raise _undeclared(name)


def _undeclared(name: str) -> OracleError:
    short = name.split("(")[0].strip().upper()
    return OracleError(
        6550,
        f"line 1, column 7:\nPLS-00201: identifier '{short}' must be declared\n"
        "ORA-06550: line 1, column 7:\nPL/SQL: Statement ignored",
    )
