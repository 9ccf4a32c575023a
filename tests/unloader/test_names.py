"""Names as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unloader.errors import SourceError, UsageError
from unloader.model import NamePart, TableName, TableSummary
from unloader.names import (
    choose_columns,
    matches_any,
    matching,
    matching_any,
    parse_table,
    resolve,
)


def plain(text: str) -> NamePart:
    """Return a part typed without quotes."""
    return NamePart(text=text)


def quoted(text: str) -> NamePart:
    """Return a part typed in double quotes."""
    return NamePart(text=text, quoted=True)


@pytest.mark.parametrize(
    ("text", "schema", "name"),
    [
        ("events", None, plain("events")),
        (" events ", None, plain("events")),
        ("public.events", plain("public"), plain("events")),
        ("public . events", plain("public"), plain("events")),
        ('"My Table"', None, quoted("My Table")),
        (' "My Table" ', None, quoted("My Table")),
        ('public."a.b"', plain("public"), quoted("a.b")),
        ('"x"."y"', quoted("x"), quoted("y")),
        ('"x" . "y"', quoted("x"), quoted("y")),
        ('"say ""hi"""', None, quoted('say "hi"')),
        ("HASH_PART$1", None, plain("HASH_PART$1")),
        ("größe", None, plain("größe")),
        ("two words", None, plain("two words")),
        ('" spaced "', None, quoted(" spaced ")),
    ],
)
def test_table_names_are_taken_apart(text: str, schema: NamePart | None, name: NamePart) -> None:
    """A name has one or two parts; blanks around parts do not count, those in quotes do."""
    assert parse_table(text) == TableName(schema=schema, name=name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "a.",
        ".a",
        "a.b.c",
        "a..b",
        '"a',
        'a"',
        '""',
        'a."',
        'a"b"',
        '"a"b',
        " . a",
        '"a".',
    ],
)
def test_texts_that_are_no_table_names(text: str) -> None:
    """Empty parts, open quotes and three parts are refused with an example."""
    with pytest.raises(UsageError, match=r"is not a table name.*Next: write NAME"):
        parse_table(text)


@given(st.text(min_size=1).map(lambda text: text.replace("\0", "x")))
def test_any_name_can_be_quoted(name: str) -> None:
    """Whatever a table is called, its name in quotes is taken literally."""
    typed = '"' + name.replace('"', '""') + '"'
    assert parse_table(f"main.{typed}") == TableName(schema=plain("main"), name=quoted(name))


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (plain("Orders"), ("Orders",)),
        (plain("ORDERS"), ("Orders", "orders")),
        (quoted("ORDERS"), ()),
        (quoted("orders"), ("orders",)),
        (plain("STRASSE"), ("straße",)),
        (plain("missing"), ()),
    ],
)
def test_the_best_kind_of_match_counts(part: NamePart, expected: tuple[str, ...]) -> None:
    """An exact match hides others; without one, plain names match in any case."""
    assert matching(part, ["Orders", "orders", "straße"]) == expected


def summary(schema: str | None, name: str) -> TableSummary:
    """Return a line of a list of tables."""
    return TableSummary(schema=schema, name=name, kind="table", rows=None, bytes=None, partitions=0)


TABLES = (
    summary("public", "events"),
    summary("public", "Events"),
    summary("sales", "events"),
    summary("sales", "orders"),
    summary("SALES", "orders"),
    summary("archive", "LOG"),
    summary(None, "bare"),
)


@pytest.mark.parametrize(
    ("text", "schema", "name"),
    [
        ("events", "public", "events"),
        ("Events", "public", "Events"),
        ("sales.EVENTS", "sales", "events"),
        ("sales.orders", "sales", "orders"),
        ('"SALES".orders', "SALES", "orders"),
        ("log", "archive", "LOG"),
        ("Archive.Log", "archive", "LOG"),
        ("bare", None, "bare"),
    ],
)
def test_a_name_means_one_table(text: str, schema: str | None, name: str) -> None:
    """Default schemas come first, then all others; an exact name wins."""
    found = resolve(parse_table(text), TABLES, default_schemas=("public",), where="the file")
    assert (found.schema, found.name) == (schema, name)


def test_other_schemas_do_not_hide_a_table() -> None:
    """A better spelling in another schema is no reason not to find the one in the schema asked."""
    tables = (summary("sales", "log"), summary("archive", "Log"))
    found = resolve(parse_table("sales.Log"), tables, default_schemas=(), where="the file")
    assert found.schema == "sales"


def test_default_schemas_count_even_where_only_the_case_differs() -> None:
    """A table of a default schema is found before a spelling that fits better elsewhere."""
    tables = (summary("public", "LOG"), summary("other", "log"))
    found = resolve(parse_table("log"), tables, default_schemas=("public",), where="the file")
    assert found.schema == "public"


@pytest.mark.parametrize(
    "text", ["nothing", "public.orders", '"LOG".log', '"log"', "nowhere.events"]
)
def test_an_unknown_table_is_named(text: str) -> None:
    """No match is an error that says how to list the tables."""
    with pytest.raises(SourceError, match=r"there is no table .* in the file.*unloader describe"):
        resolve(parse_table(text), TABLES, default_schemas=("public",), where="the file")


@pytest.mark.parametrize("text", ["orders", "EVENTS", "Sales.orders"])
def test_an_ambiguous_table_lists_its_meanings(text: str) -> None:
    """Several matches are an error that names them with their schemas."""
    with pytest.raises(SourceError, match=r"may mean .*\..* or .*\..*double quotes"):
        resolve(parse_table(text), TABLES, default_schemas=("public",), where="the file")


NAMES = ("id", "Name", "NAME", "a,b", '"q"', " padded ")


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ((), (), NAMES),
        (("Name", "ID"), (), ("Name", "id")),
        ((), ("id", '"a,b"'), ("Name", "NAME", '"q"', " padded ")),
        (("id", "NAME"), ("NAME",), ("id",)),
        (('"""q"""', '" padded "'), (), ('"q"', " padded ")),
        ((" id ",), (), ("id",)),
    ],
)
def test_columns_are_chosen(
    include: tuple[str, ...], exclude: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """Columns come in the order asked for, or in table order, without the excluded ones."""
    assert choose_columns(NAMES, include, exclude) == expected


@pytest.mark.parametrize(
    ("include", "exclude", "message"),
    [
        (("nope",), (), "there is no column 'nope'"),
        ((), ("nope",), "there is no column 'nope'"),
        (("name",), (), "may mean Name or NAME"),
        (("id", "ID"), (), "names 'id' twice"),
        (("id",), ("id",), "no column is left"),
        (('"ID"',), (), "there is no column"),
        (("",), (), "there is no column"),
    ],
)
def test_columns_that_cannot_be_chosen(
    include: tuple[str, ...], exclude: tuple[str, ...], message: str
) -> None:
    """Unknown, ambiguous and repeated names are refused, and so is an empty choice."""
    with pytest.raises(UsageError, match=message):
        choose_columns(NAMES, include, exclude)


@pytest.mark.parametrize(
    ("name", "patterns", "expected"),
    [
        ("Price", ("price",), True),
        ("price_eur", ("PRICE_*",), True),
        ("x", (), False),
        ("a1", ("a[0-9]", "b"), True),
        ("a", ("b", "?"), True),
        ("price", ("pric",), False),
    ],
)
def test_globs_ignore_case(name: str, patterns: tuple[str, ...], expected: bool) -> None:
    """A name matches if one of the patterns does, in any case."""
    assert matches_any(name, patterns) is expected


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("Case",), {"Case"}),
        (("CASE",), {"Case", "case"}),
        (("C*",), {"Case", "case"}),
        (("[ab]", "a"), {"[ab]", "a"}),
        (("nope",), set()),
    ],
)
def test_a_pattern_that_is_a_name_means_that_name(
    patterns: tuple[str, ...], expected: set[str]
) -> None:
    """Of two names that differ in case, or look like a pattern, each can be chosen by itself."""
    assert matching_any(("Case", "case", "a", "b", "[ab]"), patterns) == expected
