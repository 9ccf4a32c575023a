"""Typed names and their meaning in Oracle: case, schemas, synonyms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from oracle.leg import ID_AND_NAME, database, source
from oracle_server import OracleServer

from unloader.errors import SourceError
from unloader.request.names import parse_table
from unloader.sources.oracle.connection.session import Session
from unloader.sources.oracle.tables.names import find


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    made = database()
    for owner, name in (
        ("SCOTT", "EMP"),
        ("SCOTT", "emp"),
        ("SCOTT", "Mixed Case"),
        ("SCOTT", "BOTH"),
        ("HR", "BOTH"),
        ("HR", "STAFF"),
        ("HR", "SECRET"),
    ):
        made.create_table(owner, name, columns=ID_AND_NAME)
        if name != "SECRET":
            made.privileges.grant("SCOTT", "SELECT", on=(owner, name))
    made.create_synonym("SCOTT", "MINE", ("HR", "STAFF"))
    made.create_synonym("SCOTT", "AGAIN", ("SCOTT", "MINE"))
    made.create_synonym("PUBLIC", "EVERYBODYS", ("HR", "STAFF"))
    made.create_synonym("PUBLIC", "EMP", ("HR", "STAFF"))
    made.create_synonym("SCOTT", "LOST", ("HR", "SECRET"))
    made.create_synonym("SCOTT", "ROUND", ("SCOTT", "ABOUT"))
    made.create_synonym("SCOTT", "ABOUT", ("SCOTT", "ROUND"))
    with OracleServer(made) as server:
        opened = Session(source(server, tmp_path_factory.mktemp("scott")), action="x")
        yield opened
        opened.close()


@pytest.mark.parametrize(
    ("typed", "owner", "name"),
    [
        ("emp", "SCOTT", "EMP"),
        ("EMP", "SCOTT", "EMP"),
        ('"emp"', "SCOTT", "emp"),
        ("scott.Emp", "SCOTT", "EMP"),
        ('"Mixed Case"', "SCOTT", "Mixed Case"),
        ("mixed case", "SCOTT", "Mixed Case"),
        ("both", "SCOTT", "BOTH"),
        ("hr.both", "HR", "BOTH"),
        ("mine", "HR", "STAFF"),
        ("scott.mine", "HR", "STAFF"),
        ("again", "HR", "STAFF"),
        ("everybodys", "HR", "STAFF"),
        ("public.everybodys", "HR", "STAFF"),
    ],
)
def test_what_a_name_means(session: Session, typed: str, owner: str, name: str) -> None:
    """Plain names are folded as Oracle does, quoted ones are not, synonyms are followed.

    Only where Oracle would find nothing does another spelling count.
    """
    found = find(session, parse_table(typed), "SCOTT", "the database")
    assert (found.owner, found.name) == (owner, name)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("nosuch", "the table nosuch"),
        ("staff", r"the table staff .*name it in full, HR\.STAFF"),
        ('"EMp"', "the table EMp"),
        ("hr.secret", r"the table hr\.secret"),
        ("lost", r"synonym of HR\.SECRET"),
        ("round", "synonym of itself"),
    ],
)
def test_what_a_name_cannot_mean(session: Session, typed: str, words: str) -> None:
    """A name without a readable table is refused."""
    with pytest.raises(SourceError, match=words) as caught:
        find(session, parse_table(typed), "SCOTT", "the database")
    assert caught.value.hint
