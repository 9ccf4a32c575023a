"""docs/retries.md and the sources: each code on the page has the described effect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from oracledb.errors import _Error
from pymysql.err import OperationalError

from unloader.errors import ConnectFailed, SessionsRefused, UnloaderError
from unloader.sources.mysql import errors as of_mysql
from unloader.sources.oracle import errors as of_oracle
from unloader.sources.postgres import errors as of_postgres

PAGE = Path(__file__).parents[3] / "docs" / "retries.md"
_ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| (retried|fewer sessions|ends the run) \|$", re.M)


def rows(heading: str) -> list[tuple[str, str]]:
    """Return the codes of a section's table, each with what follows."""
    section = PAGE.read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [
        (code.strip(), follows)
        for codes, follows in _ROW.findall(section)
        for code in codes.split(",")
        if code.strip() != "none"
    ]


def what_follows(error: UnloaderError) -> str:
    if isinstance(error, SessionsRefused):
        return "fewer sessions"
    return "retried" if error.retryable else "ends the run"


@pytest.mark.parametrize(("code", "follows"), rows("Codes of PostgreSQL"))
def test_codes_of_postgresql(code: str, follows: str) -> None:
    """The server's answer to a query decides; at a connect it is a session not opened."""
    state, _, said = code.partition(" ")
    error: Any = type("ServerError", (Exception,), {"sqlstate": f"{state:0<5}"})(said.strip('"'))
    for phase in ("open", "connecting"):
        known = of_postgres.translated(error, phase=phase)  # type: ignore[arg-type]
        assert what_follows(known) == follows
        assert f"SQLSTATE {state}" in known.message
    if follows == "retried" and state[:2] == "08":
        assert isinstance(known, ConnectFailed)


@pytest.mark.parametrize(("code", "follows"), rows("Codes of Oracle"))
def test_codes_of_oracle(code: str, follows: str) -> None:
    """The database's and the driver's codes decide, with or without a session."""
    kind, _, number = code.partition("-")
    error = _Error(f"{code}: some words", code=int(number) if kind == "ORA" else 0)
    for connecting in (False, True):
        known = of_oracle.translated(error.exc_type(error), connecting=connecting)
        assert what_follows(known) == follows
        assert code in known.message
    if number in ("12514", "01034"):
        assert isinstance(known, ConnectFailed)


@pytest.mark.parametrize(("code", "follows"), rows("Codes of MySQL"))
def test_codes_of_mysql(code: str, follows: str) -> None:
    """The code of the server or of the driver decides."""
    known = of_mysql.translated(OperationalError(int(code), "some words"))
    assert what_follows(known) == follows
    assert f"(code {code})" in known.message


def test_every_retried_code_of_mysql_is_on_the_page() -> None:
    """The page and the source have the same codes."""
    on_page = {int(code) for code, follows in rows("Codes of MySQL") if follows != "ends the run"}
    assert on_page == {*of_mysql.FULL, *of_mysql.LOST, *of_mysql.TRANSIENT}


def test_every_code_of_full_databases_is_on_the_page() -> None:
    """Who meets one finds it."""
    assert {code for code, _ in rows("Codes of Oracle")} >= of_oracle.REFUSED
