"""How people write sizes, counts, durations, escapes and lists."""

from __future__ import annotations

import pytest

from unloader.request.settings import (
    at_home,
    parse_count,
    parse_numbers,
    parse_seconds,
    parse_size,
    parse_width,
    split_list,
    unescape,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1_000", 1000),
        ("64MiB", 64 * 2**20),
        ("64 mib", 64 * 2**20),
        ("4M", 4 * 2**20),
        ("1KiB", 1024),
        ("1kB", 1000),
        ("1GB", 10**9),
        ("1GiB", 2**30),
        ("2TB", 2 * 10**12),
        ("2TiB", 2 * 2**40),
        ("1.5MB", 1_500_000),
        ("0.1kB", 100),
    ],
)
def test_sizes_take_binary_and_decimal_units(text: str, expected: int) -> None:
    """KiB and K count in 1024, kB in 1000, and fractions are exact."""
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1.2", "1XB", "1 2", "0.0001kB", "1e6", "１"])
def test_what_is_no_size_is_refused_by_its_text(text: str) -> None:
    """A size that cannot be understood or is not whole is named in the message."""
    with pytest.raises(ValueError, match="is not a size") as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200k", 200_000), ("50M", 50_000_000), ("10_000_000", 10**7), ("1.5M", 1_500_000)],
)
def test_counts_are_decimal(text: str, expected: int) -> None:
    """A k is a thousand rows, never 1024."""
    assert parse_count(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("1", 1.0), ("0.5", 0.5), ("500ms", 0.5), ("5m", 300.0), ("2h", 7200.0)]
)
def test_durations_are_seconds_unless_they_say_otherwise(text: str, expected: float) -> None:
    """A bare number is seconds; ms, s, m and h are understood."""
    assert parse_seconds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\x01", "\x01"),
        (r"\t", "\t"),
        (r"\r\n", "\r\n"),
        (r"\\t", r"\t"),
        (r"\N", r"\N"),
        ("~~", "~~"),
        ("", ""),
    ],
)
def test_escapes_stand_for_characters(text: str, expected: str) -> None:
    r"""\xHH, \t, \n, \r and \\ are replaced, and \N stays what MySQL means by it."""
    assert unescape(text) == expected


@pytest.mark.parametrize("text", [r"\q", r"\x1", r"\xZZ", "\\"])
def test_an_unknown_escape_is_refused(text: str) -> None:
    """A typing error in an escape never ends up in the files."""
    with pytest.raises(ValueError, match="is not an escape"):
        unescape(text)


def test_lists_are_cut_at_commas_outside_of_quotes() -> None:
    """A quoted item keeps its commas and its quotes; blanks around items go."""
    assert split_list('A, "b,c" ,D') == ("A", '"b,c"', "D")
    assert split_list('"say ""x"", y"') == ('"say ""x"", y"',)


@pytest.mark.parametrize("text", ["", "A,,B", ",A", "A,", '"A', 'A,"B'])
def test_a_list_with_a_hole_or_an_open_quote_is_refused(text: str) -> None:
    """An empty item or an open quote is a mistake, not a name."""
    with pytest.raises(ValueError, match=r"empty item|not closed"):
        split_list(text)


def test_node_lists_take_ranges() -> None:
    """Numbers and ranges come out once each, in ascending order."""
    assert parse_numbers("2-3,0,3") == (0, 2, 3)
    with pytest.raises(ValueError, match="3-1"):
        parse_numbers("3-1")


def test_numbers_beyond_reason_are_refused() -> None:
    """A typing error neither fills the memory nor overflows what C libraries take."""
    with pytest.raises(ValueError, match="greater than 65535"):
        parse_numbers("0-99999999999")
    assert parse_size("9223372036854775807") == 2**63 - 1
    for parse, text in (
        (parse_size, "9223372036854775808"),
        (parse_size, "9999999999TiB"),
        (parse_count, "9" * 30),
        (parse_seconds, "9" * 400),
    ):
        with pytest.raises(ValueError, match="too large"):
            parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("NAME=15", ("NAME", 15)), ('"a=b" = 7', ('"a=b"', 7)), (" x =1", ("x", 1))],
)
def test_widths_are_a_column_and_its_bytes(text: str, expected: tuple[str, int]) -> None:
    """The last equals sign counts; quotes stay."""
    assert parse_width(text) == expected


@pytest.mark.parametrize("text", ["NAME", "=5", "NAME=", "NAME=0", "NAME=-1", "NAME=5k"])
def test_other_widths_are_refused(text: str) -> None:
    """The message repeats the text."""
    with pytest.raises(ValueError, match=text):
        parse_width(text)


def test_home_is_where_the_shell_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tilde before the first slash is the home directory, also of a pipe; later ones are not."""
    monkeypatch.setenv("HOME", "/home/etl/")
    assert at_home("~/out") == "/home/etl/out"
    assert at_home("~") == "/home/etl"
    assert at_home("pipe:~/x.csv") == "pipe:/home/etl/x.csv"
    for path in ("/a/~/b", "./~", "out", "", "pipe:out"):
        assert at_home(path) == path


def test_a_home_that_is_not_known_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither another user's home nor an empty HOME is guessed."""
    with pytest.raises(ValueError, match="another user's home"):
        at_home("~bob/out")
    monkeypatch.setenv("HOME", "")
    with pytest.raises(ValueError, match="HOME is not set"):
        at_home("~/out")
