"""All tables of an Oracle database together, and the meaning of typed names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES, also
from msgspec.structs import replace
from oracle.leg import ID_AND_NAME, NUMBER, database, rows, source
from oracle_server import OracleServer
from oracle_server.data.tables import PartitionSpec
from oracle_server.model import Column, Type

from unloader.errors import SourceError
from unloader.request.names import parse_table
from unloader.selection.choice import TableChoice, choose, parse_pattern
from unloader.selection.listing import (
    ListedTable,
    TableProblem,
    each_once,
    script,
    unreadable_columns,
)
from unloader.sources.oracle import dictionary
from unloader.sources.oracle.dictionary import find
from unloader.sources.oracle.session import Session
from unloader.sources.oracle.source import OracleSource
from unloader.sources.questions import describe_tables
from unloader.sources.testing import check_many_tables

HOSTILE = ("two\nlines'; --", "dot.ted*", "Plain")


@pytest.fixture
def server() -> Iterator[OracleServer]:
    """A server with tables of every kind of SCOTT, a plain user, and of HR."""
    made = database()
    made.create_table("SCOTT", "PLAIN", columns=ID_AND_NAME, rows=rows(400))
    parts = tuple(PartitionSpec(name=f"P{number}") for number in range(3))
    below = tuple(
        PartitionSpec(name=f"Q{number}", subpartitions=(f"S{number}A", f"S{number}B"))
        for number in range(2)
    )
    keyed: dict[str, Any] = {"columns": ID_AND_NAME, "organization": "index", "key": ("ID",)}
    made.create_table("SCOTT", "PARTED", columns=ID_AND_NAME, rows=rows(300), partitions=parts)
    made.create_table("SCOTT", "SUBPARTED", columns=ID_AND_NAME, rows=rows(90), partitions=below)
    made.create_table("SCOTT", "EMPTY", columns=ID_AND_NAME, rows=())
    made.create_table("SCOTT", "IOT", rows=rows(300), **keyed)
    made.create_table("SCOTT", "MV", columns=ID_AND_NAME, rows=rows(3), materialized=True)
    made.create_table("SCOTT", "MLOG$_PLAIN", columns=ID_AND_NAME, rows=rows(3))
    made.create_table(
        "SCOTT", "OUTSIDE", columns=ID_AND_NAME, rows=rows(3), organization="external"
    )
    made.create_view("SCOTT", "SEEN", "SELECT ID FROM SCOTT.PLAIN")
    for name in HOSTILE:
        made.create_table("SCOTT", name, columns=ID_AND_NAME, rows=rows(2))
    for name in ("STAFF", "PAY", "HIDDEN"):
        made.create_table("HR", name, columns=ID_AND_NAME, rows=rows(50))
    with OracleServer(made) as running:
        yield running


@pytest.mark.parametrize(
    ("right", "together"),
    [("DBA_EXTENTS", 3), *also(OTHER_ROUTES, ("", 500), ("DBA_SEGMENTS", 500))],
)
def test_contract_of_many_tables(
    server: OracleServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: str, together: int
) -> None:
    """With extents or samples, all tables in one statement or in several: each as it is alone."""
    if right:
        server.database.privileges.grant("SCOTT", right)
    monkeypatch.setattr(dictionary, "NAMES_TOGETHER", together)
    spec = source(server, tmp_path)
    listing = check_many_tables(OracleSource(), spec, at_least=len(HOSTILE) + 8)
    found = {table.label: table for table in listing.tables}
    assert "SCOTT.SUBPARTED" in found
    assert found["SCOTT.IOT"].family == "table"
    assert found["SCOTT.MV"].family == "materialized view"
    assert found["SCOTT.OUTSIDE"].family == "external table"
    assert found["SCOTT.MLOG$_PLAIN"].system
    assert "HR.STAFF" not in found


def test_the_number_of_statements_is_fixed(
    server: OracleServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tables there are, where the extents are known."""
    for at in range(9):
        server.database.create_table("SCOTT", f"T{at}", columns=ID_AND_NAME, rows=())
    server.database.privileges.grant("SCOTT", "DBA_EXTENTS")
    with closing(OracleSource().open_catalog(source(server, tmp_path))) as catalog:
        counted: list[str] = []
        run = catalog._session.run

        def counting(sql: str, *more: Any) -> Any:
            counted.append(sql)
            return run(sql, *more)

        monkeypatch.setattr(catalog._session, "run", counting)
        listing = catalog.list_tables()
        listed = len(counted)
        assert listed <= 10
        wanted = TableChoice(tables=(parse_pattern("SCOTT.*"),))
        described = describe_tables(catalog, choose(wanted, listing))
        assert len(described.tables) == 9 + len(HOSTILE) + 6
        assert len(counted) - listed <= 10


def test_missing_rights_are_told_with_their_grants(server: OracleServer, tmp_path: Path) -> None:
    """To read, and to read as of an SCN; what no one may see is left to the database's answer."""
    rights = server.database.privileges
    rights.grant("SCOTT", "INSERT", ("HR", "PAY"))
    rights.grant("SCOTT", "SELECT", ("HR", "STAFF"))
    wanted = TableChoice(tables=tuple(map(parse_pattern, ("HR.*", "hr.hidden", "PLAIN"))))
    with closing(OracleSource().open_catalog(source(server, tmp_path))) as catalog:

        def problems() -> tuple[TableProblem, ...]:
            chosen = choose(wanted, catalog.list_tables())
            return each_once((*chosen.problems, *describe_tables(catalog, chosen).problems))

        without = problems()
        assert [problem.table for problem in without] == ["HR.PAY", "hr.hidden"]
        assert script(without) == 'GRANT SELECT ON "HR"."PAY" TO "SCOTT";\n'
        catalog.snapshot("snapshot")
        found = problems()
        assert script(found) == (
            'GRANT SELECT ON "HR"."PAY" TO "SCOTT";\n'
            'GRANT FLASHBACK ON "HR"."PAY" TO "SCOTT";\n'
            'GRANT FLASHBACK ON "HR"."STAFF" TO "SCOTT";\n'
        )
        rights.grant("SCOTT", "SELECT ANY TABLE")
        rights.grant("SCOTT", "FLASHBACK ANY TABLE")
        assert problems() == ()


def test_columns_that_cannot_be_read_are_told(server: OracleServer, tmp_path: Path) -> None:
    """By name, and only while they are among the columns asked for; documents can be read."""
    columns = (
        Column(name="ID", type=NUMBER),
        Column(name="FILE", type=Type(name="BFILE")),
        Column(name="XML", type=Type(name="XMLTYPE")),
        Column(name="MOMENT", type=Type(name="TIMESTAMP", scale=3)),
    )
    server.database.create_table("SCOTT", "ODD", columns=columns, rows=())
    with closing(OracleSource().open_catalog(source(server, tmp_path))) as catalog:
        wanted = TableChoice(tables=(parse_pattern("*"),))
        chosen = choose(wanted, catalog.list_tables())
    found = [problem for table in chosen.tables for problem in unreadable_columns(table)]
    assert [problem.sentence for problem in found] == [
        "SCOTT.ODD: column FILE has the type BFILE, which cannot be read exactly"
    ]
    (odd,) = (table for table in chosen.tables if table.name == "ODD")
    assert unreadable_columns(odd, ("ID", "XML")) == ()


def test_a_synonym_means_its_table(server: OracleServer, tmp_path: Path) -> None:
    """It is in no list; its table comes once, or not at all if excluded."""
    server.database.create_synonym("SCOTT", "ALIAS", ("SCOTT", "PLAIN"))
    with closing(OracleSource().open_catalog(source(server, tmp_path))) as catalog:
        listing = catalog.list_tables()
        both = TableChoice(tables=(parse_pattern("alias"), parse_pattern("plain")))
        (info,) = describe_tables(catalog, choose(both, listing)).tables
        assert info == catalog.describe(parse_pattern("PLAIN").table)  # type: ignore[arg-type]
        without = replace(both, exclude=(parse_pattern("PLAIN"),))
        found = describe_tables(catalog, choose(without, listing))
        assert found.tables == ()
        assert found.notices == ("alias means SCOTT.PLAIN, which is excluded",)


def test_what_was_dropped_meanwhile_is_told(server: OracleServer, tmp_path: Path) -> None:
    """The other tables are described."""
    with closing(OracleSource().open_catalog(source(server, tmp_path))) as catalog:
        listing = catalog.list_tables()
        names = {"EMPTY", "PLAIN"}
        chosen = choose(TableChoice(tables=tuple(map(parse_pattern, sorted(names)))), listing)
        gone: ListedTable = replace(chosen.tables[0], name="WENT")
        found = describe_tables(catalog, replace(chosen, tables=(gone, *chosen.tables)))
        assert [problem.sentence for problem in found.problems] == [
            "SCOTT.WENT: it was dropped or renamed after the run began"
        ]
        assert {info.name for info in found.tables} == names


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
