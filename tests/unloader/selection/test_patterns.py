"""Patterns of table names: their reading and their matches."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from unloader.errors import UsageError
from unloader.model import NamePart
from unloader.selection.choice import PartPattern, parse_pattern, patterns_of

NAMES = st.text(alphabet="aAbB*?[]!-.\"' \nÄß😀_1", min_size=1, max_size=6)
"""Hostile names: special characters of patterns, SQL and files, and letters of several cases."""


def quoted(name: str) -> str:
    """Return a name in double quotes."""
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize(
    ("text", "name", "also", "not_these"),
    [
        ("ORDERS_*", "ORDERS_", ("ORDERS_2024", "ORDERS_*"), ("ORDERS", "XORDERS_1")),
        ("T?", "T1", ("T?", "T\n"), ("T", "T12")),
        ("T[0-9]", "T7", ("T0",), ("T", "TX", "T[0-9]")),
        ("T[!0-9]", "TX", ("T!",), ("T0",)),
        ('"T*"', "T*", (), ("T", "TX")),
        ('"T*"*', "T*", ("T*X", "T**"), ("TX", "T")),
        ('*"."*', "a.b", (".",), ("ab",)),
        ('[a"]"*', "[a]", ("[a]x",), ("a", "a]")),
        ("T[1", "T[1", (), ("T1",)),
        ('a"b""c"', 'ab"c', (), ("abc",)),
    ],
)
def test_a_pattern_matches(
    text: str, name: str, also: tuple[str, ...], not_these: tuple[str, ...]
) -> None:
    """Outside of quotes there are wildcards; inside, every character means itself."""
    pattern = parse_pattern(text).name
    wanted = (name, *also)
    assert pattern.among((*wanted, *not_these), "any") == wanted


@pytest.mark.parametrize(
    "text", ["", " ", ".", "a.", ".a", "a.b.c", '"a', 'a"', '""', '"a" b', "*."]
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    """The error has the text, and states how a name is written."""
    with pytest.raises(UsageError, match=re.escape(repr(text))) as caught:
        parse_pattern(text)
    assert "NAME or SCHEMA.NAME" in caught.value.hint


@settings(max_examples=examples(400))
@given(st.lists(NAMES, min_size=1, unique=True), st.sampled_from(("lower", "upper", "any")))
def test_a_quoted_name_matches_itself_alone(names: list[str], folding: str) -> None:
    """In quotes wildcards are literal, and case counts if the database distinguishes it."""
    wanted = names[0]
    found = parse_pattern(quoted(wanted)).name.among(names, folding)  # type: ignore[arg-type]
    assert wanted in found
    if folding != "any":
        assert found == (wanted,)


@settings(max_examples=examples(400))
@given(st.lists(NAMES, unique=True), st.text(alphabet="aA*?[]!b", min_size=1, max_size=5))
def test_plain_patterns_are_those_of_a_shell(names: list[str], text: str) -> None:
    """Where nothing is quoted and no case is folded, a pattern matches as `fnmatch` does."""
    pattern = PartPattern(segments=(NamePart(text=text.lower()),))
    exact = [name for name in names if fnmatchcase(name, text.lower())]
    if exact:
        assert list(pattern.among(names, "lower")) == exact


@settings(max_examples=examples(400))
@given(st.lists(NAMES, unique=True), st.lists(NAMES, min_size=1, max_size=3))
def test_texts_in_quotes_are_found_in_order(names: list[str], texts: list[str]) -> None:
    """`"a"*"b"*` matches names that begin with a and hold b after it."""
    pattern = parse_pattern("*".join(map(quoted, texts)) + "*").name
    wanted = re.compile(".*".join(map(re.escape, texts)) + ".*", re.DOTALL)
    found = pattern.among(names, "upper")
    assert list(found) == [name for name in names if wanted.fullmatch(name)]


@pytest.mark.parametrize(
    ("folding", "text", "names", "found"),
    [
        ("upper", "ord*", ("ORDERS", "orders"), ("ORDERS",)),
        ("lower", "ORD*", ("ORDERS", "orders"), ("orders",)),
        ("lower", "Ord*", ("ORDERS", "Orders"), ("Orders",)),
        ("lower", "oRd*", ("ORDERS", "Orders"), ("ORDERS", "Orders")),
        ("any", "oRd*", ("ORDERS", "Orders"), ("ORDERS", "Orders")),
        ("upper", '"Ord"*', ("ORDERS", "Orders"), ("Orders",)),
        ("lower", '"ORD"*', ("orders",), ()),
        ("lower", "Ä*", ("äx", "Äx"), ("Äx",)),
        ("upper", "t[a-c]", ("TB", "tb"), ("TB",)),
    ],
)
def test_letters_are_read_as_the_database_reads_them(
    folding: str, text: str, names: tuple[str, ...], found: tuple[str, ...]
) -> None:
    """First its own case, then the case as typed, then any; quoted letters mean themselves."""
    assert parse_pattern(text).name.among(names, folding) == found  # type: ignore[arg-type]


def test_a_file_of_patterns() -> None:
    """Comments and blank lines are left out; a name may span lines, and begin with `#`."""
    text = '# all of it\r\n\r\nSALES.*\r\n  HR.STAFF  \n"#odd"\n"two\nlines".*\nA#B\n'
    found = patterns_of(text, "list.txt")
    assert [pattern.text for pattern in found] == [
        "SALES.*",
        "HR.STAFF",
        '"#odd"',
        '"two\nlines".*',
        "A#B",
    ]
    assert [pattern.origin for pattern in found][-2:] == ["list.txt, line 6", "list.txt, line 8"]


@settings(max_examples=examples(400))
@given(st.lists(NAMES, max_size=4))
def test_quoted_names_come_back_from_a_file(names: list[str]) -> None:
    """A file can contain any name."""
    found = patterns_of("\n".join(map(quoted, names)), "f")
    assert [pattern.name.literal for pattern in found] == [
        NamePart(text=name, quoted=True) for name in names
    ]
