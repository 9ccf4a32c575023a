"""Statements that change nothing but the session: ALTER SESSION, transactions, a few blocks."""

from __future__ import annotations

import re
from typing import Any

from oracle_server.model import Answer, OracleError, SessionState

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


def run_block(sql: str) -> Answer:
    """Run a PL/SQL block that does nothing.

    Raises:
        OracleError: ORA-06550 for anything else.
    """
    body = re.sub(r"(?is)^\s*(CALL|BEGIN)\s|\bEND\s*;?\s*$", "", sql.strip().rstrip("/").strip())
    if body.strip(" \n\t;").upper() not in ("", "NULL"):
        raise _undeclared(body)
    return Answer(kind="plsql")


def _undeclared(name: str) -> OracleError:
    short = name.split("(")[0].strip().upper()
    return OracleError(
        6550,
        f"line 1, column 7:\nPLS-00201: identifier '{short}' must be declared\n"
        "ORA-06550: line 1, column 7:\nPL/SQL: Statement ignored",
    )
