"""Which tables of a listing are chosen, and messages about the others."""

from __future__ import annotations

from typing import Any

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from unloader.errors import UsageError
from unloader.request.names import Folding
from unloader.selection.choice import (
    Chosen,
    TableChoice,
    choose,
    parse_pattern,
    parse_schema,
    read_patterns,
)
from unloader.selection.listing import (
    FAMILIES,
    ListedTable,
    Listing,
    Obstacle,
    each_once,
    of_unread_type,
    one_error,
    script,
    unreadable_columns,
)


def table(schema: str, name: str, kind: str = "table", **more: Any) -> ListedTable:
    """Return a table of a listing."""
    families = {"view": "view", "foreign table": "external table"}
    facts: dict[str, Any] = {"family": families.get(kind, "table")}
    return ListedTable(schema=schema, name=name, kind=kind, **facts | more)


def listing(*tables: ListedTable, folding: Folding = "upper", schemas: str = "SALES") -> Listing:
    """Return a listing of a user whose default schemas are these."""
    return Listing.of(
        list(tables), folding=folding, default_schemas=tuple(schemas.split()), where="the test"
    )


def chosen(
    found: Listing, *tables: str, schemas: str = "", exclude: tuple[str, ...] = (), **more: Any
) -> Chosen:
    return choose(
        TableChoice(
            tables=tuple(map(parse_pattern, tables)),
            schemas=tuple(parse_schema(each, "--schema") for each in schemas.split()),
            exclude=tuple(parse_pattern(each, "exclusions") for each in exclude),
            **more,
        ),
        found,
    )


def labels(found: Chosen) -> list[str]:
    """Return the names of the tables chosen, in their order."""
    return [each.label for each in found.tables]


SHOP = listing(
    table("SALES", "ORDERS"),
    table("SALES", "ORDERS_OLD"),
    table("SALES", "Orders"),
    table("SALES", "TOP_ORDERS", "view"),
    table("SALES", "FAR", "foreign table"),
    table("HR", "STAFF"),
    table("HR", "ORDERS"),
    table("SYS", "ORDERS_SYS", system=True),
    table("SALES", "MLOG$_ORDERS", system=True),
)


@pytest.mark.parametrize(
    ("tables", "schemas", "exclude", "found"),
    [
        (("SALES.*",), "", (), ["SALES.ORDERS", "SALES.ORDERS_OLD", "SALES.Orders"]),
        (("orders*",), "", (), ["SALES.ORDERS", "SALES.ORDERS_OLD"]),
        (("*.ORDERS",), "", (), ["HR.ORDERS", "SALES.ORDERS"]),
        (("hr.staff", "HR.*", "HR.STAFF"), "", (), ["HR.ORDERS", "HR.STAFF"]),
        (("TOP_ORDERS",), "", (), ["SALES.TOP_ORDERS"]),
        (("ORDERS",), "", (), ["SALES.ORDERS"]),
        (('"Orders"',), "", (), ["SALES.Orders"]),
        ((), "HR", (), ["HR.ORDERS", "HR.STAFF"]),
        ((), "*", ("ORDERS*",), ["HR.STAFF", "SALES.Orders"]),
        (("ORDERS",), "*", (), ["HR.ORDERS", "SALES.ORDERS"]),
        (("*.*",), "", ("HR.*", "ORDERS_OLD"), ["SALES.ORDERS", "SALES.Orders"]),
    ],
)
def test_what_is_chosen(
    tables: tuple[str, ...], schemas: str, exclude: tuple[str, ...], found: list[str]
) -> None:
    """Names, patterns, schemas and exclusions, each table once, by schema and name."""
    made = chosen(SHOP, *tables, schemas=schemas, exclude=exclude)
    assert (labels(made), made.problems, made.unlisted) == (found, (), ())


@pytest.mark.parametrize("pattern", ["SYS.*", "S*.MLOG*", "SYS.ORDERS_SY?"])
def test_no_pattern_matches_a_table_of_the_database_itself(pattern: str) -> None:
    """Neither in a schema of the system nor one that serves another table."""
    (problem,) = chosen(SHOP, pattern).problems
    assert (problem.kind, problem.table) == ("unmatched", pattern)


def test_other_families_are_chosen_on_request() -> None:
    """A view is left out by a pattern with a word about it, and taken where views are asked for."""
    left = chosen(SHOP, "SALES.T*", "SALES.*")
    (problem,) = left.problems
    assert "it matches 1 view but no table" in problem.error.message
    assert left.notices[0] == (
        "SALES.* also matches 1 foreign table and 1 view, which are left out"
    )
    assert labels(chosen(SHOP, "SALES.T*", families=FAMILIES)) == ["SALES.TOP_ORDERS"]


def test_what_the_listing_lacks_is_left_to_the_source() -> None:
    """A synonym, a partition, a name that databases read differently: only the source knows."""
    made = chosen(SHOP, "synonym", "HR.P1", "Größe", "SALES.orders", "synonym", "SYS.ORDERS_SYS")
    left = ["synonym", "HR.P1", "Größe", "SYS.ORDERS_SYS"]
    assert [str(name) for name, _ in made.unlisted] == left
    assert labels(made) == ["SALES.ORDERS"]


def test_all_that_matches_nothing_is_told_at_once() -> None:
    """Each pattern, schema and exclusion; as notices where that is asked for."""
    asked: dict[str, Any] = {"schemas": "NONE HR", "exclude": ("TEMP_*", "SALES.GONE")}
    made = chosen(SHOP, "X*", "STAFF", "HR.Y?", **asked)
    assert [problem.table for problem in made.problems] == [
        "NONE", "X*", "HR.Y?", "TEMP_*", "SALES.GONE",
    ]  # fmt: skip
    lax = chosen(SHOP, "X*", "STAFF", "HR.Y?", **asked, allow_unmatched=True)
    assert (labels(lax), lax.problems, len(lax.notices)) == (["HR.STAFF"], (), 5)


def test_rows_that_are_read_twice_are_told() -> None:
    """A child by inheritance is a table, and its parent has the same rows, too."""
    found = listing(table("S", "P"), table("S", "C", part_of=("S", "P")))
    assert "the rows of S.C are unloaded twice" in chosen(found, "S.*").notices[0]
    assert chosen(found, "S.C").notices == ()


def test_problems_of_tables_come_with_what_mends_them() -> None:
    """All together, each statement once, in one script that no name can escape."""
    hostile = 'x"\n; DROP TABLE y; --'
    right = Obstacle(kind="no right", what="user u has no right", mend=("GRANT USAGE", "GRANT A"))
    again = replace(right, mend=("GRANT USAGE", f'GRANT "{hostile}"'))
    rest = Obstacle(kind="rows hidden", what="policies hide rows", hint="ask")
    found = listing(
        table("S", "A", obstacles=(right,)),
        table("S", hostile, obstacles=(again,)),
        table("S", "C", obstacles=(rest,), unreadable=(of_unread_type("f", "BFILE"),)),
        table("S", "FINE"),
    )  # fmt: skip
    made = chosen(found, "S.*", "S.N*")
    columns = [problem for each in made.tables for problem in unreadable_columns(each)]
    problems = each_once((*made.problems, *columns, *columns))
    assert [problem.kind for problem in problems] == [
        "unmatched", "no right", "rows hidden", "no right", "column",
    ]  # fmt: skip
    assert script(problems) == f'GRANT USAGE;\nGRANT A;\nGRANT "{hostile}";\n'
    error = one_error(problems, 5)
    assert error.exit_code == 4
    assert "5 problems found: S.N*: it matches no table" in str(error)
    assert "S.C: column f has the type BFILE" in str(error)
    assert error.script == script(problems)
    assert chosen(found, "S.FINE").problems == ()
    column = one_error(columns, 4)
    assert "--exclude f" in column.hint
    assert unreadable_columns(made.tables[1], {"other"}) == ()


NAME = st.text(alphabet='aAbB*?[]."\n\\ é', min_size=1, max_size=4)


@settings(max_examples=examples(400))
@given(
    st.lists(st.tuples(st.sampled_from(("S", "s.s")), NAME), unique=True, max_size=8),
    st.sampled_from(("lower", "upper", "any")),
    st.randoms(),
)
def test_every_table_can_be_named_and_excluded(
    names: list[tuple[str, str]], folding: Folding, random: Any
) -> None:
    """By any name in quotes; the order of typing does not matter."""
    if folding == "any":
        names = list({(schema, name.casefold()): (schema, name) for schema, name in names}.values())
    found = listing(*(table(*name) for name in names), folding=folding)
    typed = ['"' + '"."'.join(part.replace('"', '""') for part in name) + '"' for name in names]
    random.shuffle(typed)
    if not typed:
        return
    made = chosen(found, *typed, *typed)
    assert [each.key for each in made.tables] == sorted(names)
    assert (made.unlisted, made.problems) == ((), ())
    rest = chosen(found, "*.*", exclude=(typed[0],))
    assert len(rest.tables) == len(names) - 1


def test_patterns_come_from_a_file(tmp_path: Any) -> None:
    """A file in UTF-8, with a mark at its beginning or without; mistakes in it are reported."""
    path = tmp_path / "list"
    path.write_bytes("\ufeffSALES.ORD*\n# end\n".encode())
    assert [pattern.text for pattern in read_patterns(path)] == ["SALES.ORD*"]
    for content, said in ((b"# none\n", "is empty"), (b"\xff", "not UTF-8")):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=said):
            read_patterns(path)
    with pytest.raises(UsageError, match=r"cannot read the list of tables .*: No such file"):
        read_patterns(tmp_path / "absent")
