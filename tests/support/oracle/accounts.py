"""Users of the Oracle test server, and how the unloader is told to connect as them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oracle_server.database import Database
from oracle_server.model import Column, Type
from oracle_server.server import OracleServer

from unloader.model import SecretReference, SessionOptions, SourceSpec

PASSWORD = "Tiger#1 ü"

NUMBER = Type(name="NUMBER", precision=9, scale=0)
TEXT = Type(name="VARCHAR2", length=20, in_chars=True)
ID_AND_NAME = (
    Column(name="ID", type=NUMBER, nullable=False),
    Column(name="NAME", type=TEXT),
)


def database(*, dba: bool = False, **options: Any) -> Database:
    """Return a database with the users SCOTT and HR and no tables."""
    made = Database(**options)
    made.add_user("SCOTT", PASSWORD, dba=dba)
    made.add_user("HR", PASSWORD)
    return made


def rows(count: int, start: int = 0) -> list[tuple[int, str]]:
    """Return rows of ID_AND_NAME."""
    return [(number, f"name {number}") for number in range(start, start + count)]


def source(
    server: OracleServer,
    directory: Path,
    *,
    url: str = "",
    password: str = PASSWORD,
    session: SessionOptions | None = None,
) -> SourceSpec:
    """Return a source with its password in a file of the directory."""
    file = directory / "password"
    file.write_text(password, encoding="utf-8")
    return SourceSpec(
        kind="oracle",
        location=url or server.url("scott"),
        secret=SecretReference(kind="file", name=str(file)),
        session=session or SessionOptions(),
    )
