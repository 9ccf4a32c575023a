"""Names as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unloader.errors import SourceError, UsageError
from unloader.model import NamePart, TableName, TableSummary
from unloader.request.names import (
    Folding,
    choose_columns,
    folded,
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
    """Any name of a table in quotes is taken literally."""
    typed = '"' + name.replace('"', '""') + '"'
    assert parse_table(f"main.{typed}") == TableName(schema=plain("main"), name=quoted(name))


@pytest.mark.parametrize(
    ("part", "folding", "expected"),
    [
        (plain("Orders"), "lower", ("orders",)),
        (plain("Orders"), "upper", ("ORDERS",)),
        (quoted("Orders"), "lower", ("Orders",)),
        (quoted("oRDERS"), "upper", ()),
        (plain("KIND"), "lower", ("Kind",)),
        (plain("kind"), "upper", ("Kind",)),
        (plain("Kind"), "any", ("Kind",)),
        (quoted("KIND"), "any", ("Kind",)),
        (quoted("Orders"), "any", ("Orders",)),
        (plain("Orders"), "any", ("ORDERS", "Orders", "orders")),
        (quoted("KIND"), "lower", ()),
        (plain("STRASSE"), "lower", ("straße",)),
        (plain("straße"), "upper", ("straße",)),
        (plain("Größe"), "lower", ("größe",)),
        (plain("GRÖSSE"), "any", ("größe",)),
        (plain("missing"), "any", ()),
    ],
)
def test_a_name_means_what_the_database_means(
    part: NamePart, folding: Folding, expected: tuple[str, ...]
) -> None:
    """An exact match does not hide the folded name; without either, another spelling counts."""
    names = ["ORDERS", "Orders", "orders", "Kind", "straße", "größe"]
    assert matching(part, names, folding) == expected


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_folding_keeps_the_length_and_is_done_once(text: str) -> None:
    """No letter becomes two, and folded text does not change again."""
    for folding in ("lower", "upper", "any"):
        once = folded(text, folding)  # type: ignore[arg-type]
        assert len(once) == len(text)
        assert folded(once, folding) == once  # type: ignore[arg-type]


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
    summary("public", "BOTH"),
    summary("second", "both"),
    summary("public", "Mixed"),
    summary(None, "bare"),
)


@pytest.mark.parametrize(
    ("text", "schema", "name"),
    [
        ("events", "public", "events"),
        ("Events", "public", "events"),
        ('"Events"', "public", "Events"),
        ("sales.EVENTS", "sales", "events"),
        ("sales.orders", "sales", "orders"),
        ("SALES.orders", "sales", "orders"),
        ('"SALES".orders', "SALES", "orders"),
        ("Archive.Log", "archive", "LOG"),
        ("both", "second", "both"),
        ("Mixed", "public", "Mixed"),
    ],
)
def test_a_name_means_one_table(text: str, schema: str | None, name: str) -> None:
    """Default schemas are searched in their order for the name that the database would read."""
    found = resolve(
        parse_table(text),
        TABLES,
        folding="lower",
        default_schemas=("public", "second"),
        where="the file",
    )
    assert (found.schema, found.name) == (schema, name)


def test_a_source_without_schemas() -> None:
    """Tables without a schema are found under the default schema."""
    found = resolve(
        parse_table("BARE"), TABLES, folding="any", default_schemas=("",), where="the file"
    )
    assert (found.schema, found.name) == (None, "bare")


def test_other_schemas_do_not_hide_a_table() -> None:
    """A better spelling in another schema does not hide the table of the requested schema."""
    tables = (summary("sales", "log"), summary("archive", "Log"))
    found = resolve(
        parse_table("sales.Log"), tables, folding="upper", default_schemas=(), where="the file"
    )
    assert found.schema == "sales"


@pytest.mark.parametrize(
    ("text", "next_step"),
    [
        ("nothing", "unloader describe"),
        ("orders", r'name it in full, sales\.orders or "SALES"\.orders'),
        ("log", r'name it in full, archive\."LOG"'),
        ('"LOG".log', r'name it in full, archive\."LOG"'),
        ("nowhere.events", r'public\.events or public\."Events" or sales\.events'),
    ],
)
def test_an_unknown_table_is_named(text: str, next_step: str) -> None:
    """Further schemas are not searched; the error names tables of that name, or how to list all."""
    with pytest.raises(SourceError, match=rf"the table .* is not in the file.*{next_step}"):
        resolve(
            parse_table(text),
            TABLES,
            folding="lower",
            default_schemas=("public", "second"),
            where="the file",
        )


def test_an_ambiguous_table_lists_its_meanings() -> None:
    """Spellings that the database itself would not find are named with their schema."""
    tables = (summary("public", "Log"), summary("public", "lOg"))
    with pytest.raises(SourceError, match=r'may mean public\."Log" or public\."lOg".*quotes'):
        resolve(
            parse_table("log"), tables, folding="lower", default_schemas=("public",), where="here"
        )


NAMES = ("id", "Name", "NAME", "name", "Other", "OTHER", "a,b", '"q"', " padded ")


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ((), (), NAMES),
        (('"Name"', "ID"), (), ("Name", "id")),
        (("Name",), (), ("name",)),
        ((), ("id", '"a,b"'), ("Name", "NAME", "name", "Other", "OTHER", '"q"', " padded ")),
        (("id", '"NAME"'), ('"NAME"',), ("id",)),
        (('"""q"""', '" padded "'), (), ('"q"', " padded ")),
        ((" id ",), (), ("id",)),
    ],
)
def test_columns_are_chosen(
    include: tuple[str, ...], exclude: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """Columns come in the order asked for, or in table order, without the excluded ones."""
    assert choose_columns(NAMES, include, exclude, "lower") == expected


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (("addr_*",), (), ("addr_street", "ADDR_zip")),
        (("total", "ADDR_*", "id"), (), ("total", "addr_street", "ADDR_zip", "id")),
        (("addr_zip", "*"), (), ("ADDR_zip", "id", "addr_street", "total", "total*", "x")),
        (("*", "id"), (), ("id", "addr_street", "ADDR_zip", "total", "total*", "x")),
        ((), ("addr_*", "id"), ("total", "total*", "x")),
        (("*",), ("[a-i]*", "t*l"), ("total*", "x")),
        (("?",), (), ("x",)),
        (("total*",), (), ("total*",)),
        (('"total*"',), (), ("total*",)),
        (("TOTAL*",), (), ("total", "total*")),
    ],
)
def test_patterns_stand_for_all_columns_that_match(
    include: tuple[str, ...], exclude: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """Names keep their order, a pattern has the table's order, each column once; names are literal."""
    names = ("id", "addr_street", "ADDR_zip", "total", "total*", "x")
    assert choose_columns(names, include, exclude, "any") == expected


@pytest.mark.parametrize(
    ("include", "exclude", "message"),
    [
        (("zip*",), (), r"--columns zip\* matches no column"),
        ((), ("zip*",), r"--exclude zip\* matches no column"),
        ((), ("*",), "no column is left"),
        (('"i*"',), (), "unknown column"),
        (("nope",), (), "unknown column 'nope'"),
        ((), ("nope",), "unknown column 'nope'"),
        (("other",), (), "may mean Other or OTHER"),
        (("id", "ID"), (), "names 'id' twice"),
        (("id",), ("id",), "no column is left"),
        (('"ID"',), (), "unknown column"),
        (("",), (), "unknown column"),
    ],
)
def test_columns_that_cannot_be_chosen(
    include: tuple[str, ...], exclude: tuple[str, ...], message: str
) -> None:
    """Unknown, ambiguous and repeated names are refused, and so is an empty choice."""
    with pytest.raises(UsageError, match=message):
        choose_columns(NAMES, include, exclude, "lower")


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("Case",), {"Case"}),
        (("CASE",), {"Case", "case"}),
        (("C*",), {"Case", "case"}),
        (("[ab]", "a"), {"[ab]", "a"}),
        (("nope",), set()),
        ((), set()),
        (("[x-z]", "?"), {"a", "b"}),
    ],
)
def test_a_pattern_ignores_case_unless_it_is_a_name(
    patterns: tuple[str, ...], expected: set[str]
) -> None:
    """Of two names that differ in case, or look like a pattern, each can be chosen alone."""
    assert matching_any(("Case", "case", "a", "b", "[ab]"), patterns) == expected
