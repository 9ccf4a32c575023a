"""How people write the values of options, and which texts are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from unloader.request import value_types as kinds
from unloader.request.settings import at_home, parse_width, split_list

READ: list[tuple[kinds.Kind, dict[str, Any]]] = [
    (
        kinds.SIZE,
        {
            "0": 0,
            "4096": 4096,
            "1_000": 1000,
            "64MiB": 64 * 2**20,
            "64 mib": 64 * 2**20,
            "4M": 4 * 2**20,
            "1KiB": 1024,
            "1kB": 1000,
            "1GB": 10**9,
            "1GiB": 2**30,
            "2TB": 2 * 10**12,
            "2TiB": 2 * 2**40,
            "1.5MB": 1_500_000,
            "0.1kB": 100,
            "9223372036854775807": 2**63 - 1,
        },
    ),
    (kinds.COUNT, {"200k": 200_000, "50M": 50_000_000, "10_000_000": 10**7, "1.5M": 1_500_000}),
    (kinds.SECONDS, {"1": 1.0, "0.5": 0.5, "500ms": 0.5, "5m": 300.0, "2h": 7200.0}),
    (kinds.PERCENT_BELOW_100, {"75%": 0.75, "75": 0.75, "2.5 %": 0.025, "0": 0.0}),
    (
        kinds.LEVELS,
        {
            "4": (4,),
            "1,2,4,8": (1, 2, 4, 8),
            " 8 , 4 ": (8, 4),
            "1..4": (1, 2, 3, 4),
            "4..1": (4, 3, 2, 1),
            "32..4:-4,3,2": (32, 28, 24, 20, 16, 12, 8, 4, 3, 2),
            "1..6:2": (1, 3, 5),
            "1..6:+2": (1, 3, 5),
            "5..5": (5,),
            "4,2..6:2,4": (4, 2, 6),
            "65535": (65535,),
        },
    ),
]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [(kind, text, value) for kind, pairs in READ for text, value in pairs.items()],
)
def test_a_value_is_read_and_written(kind: kinds.Kind, text: str, value: Any) -> None:
    """KiB and K count in 1024, kB in 1000, a k of rows is 1000; a bare duration is in seconds.

    The written text is read as the same value.
    """
    assert kind.read(text) == pytest.approx(value)
    assert kind.read(kind.write(value)) == pytest.approx(value)


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
def test_escapes_are_replaced_by_characters(text: str, expected: str) -> None:
    r"""\xHH, \t, \n, \r and \\ are replaced, and \N keeps the meaning that it has in MySQL."""
    assert kinds.TEXT.read(text) == expected


REFUSED: list[tuple[kinds.Kind, str, tuple[str, ...]]] = [
    (
        kinds.SIZE,
        "'{}' is not a size",
        ("", "MiB", "-1", "1.2", "1XB", "1 2", "0.0001kB", "1e6", "１"),
    ),
    (kinds.SIZE, "too large", ("9223372036854775808", "9999999999TiB")),
    (kinds.COUNT, "too large", ("9" * 30,)),
    (kinds.SECONDS, "too large", ("9" * 400,)),
    (kinds.TEXT, "is not an escape", (r"\q", r"\x1", r"\xZZ", "\\")),
    (kinds.NUMBERS, "'{}' is not a list", ("3-1", "", "x")),
    (kinds.NUMBERS, "greater than 65535", ("0-99999999999",)),
    (kinds.PERCENT_BELOW_100, "percentage", ("", "%", "-5%", "1e1", "0,5", "nan", "5%%", "٥")),
    (kinds.PERCENT_BELOW_100, "below 100", ("100%",)),
    # 0.75 may be meant as a share, and is not 0.75 %.
    (kinds.PERCENT_BELOW_100, "may be a share", ("0.75", "1", "0.05")),
    (kinds.LEVELS, "a level is empty", ("", "1,,2", "1,2,")),
    (
        kinds.LEVELS,
        "'{}' is not a level",
        ("all", "1-4", "1..", "1..4:", "1.5", "-1", "٣", "9999999999999"),
    ),
    (kinds.LEVELS, "0 is not a number of workers", ("0", "4..0:-2")),
    (kinds.LEVELS, "65536 is not a number of workers", ("65536",)),
    (kinds.LEVELS, "the step of {} does not lead from 1 to 8; write 1..8:+2", ("1..8:-2",)),
    (kinds.LEVELS, "the step of {} does not lead", ("8..1:2", "1..8:0")),
    (kinds.LEVELS, "there are more than 1000 levels", ("1..9999", "1..999999999")),
]


@pytest.mark.parametrize(
    ("kind", "message", "text"),
    [(kind, message, text) for kind, message, texts in REFUSED for text in texts],
)
def test_a_text_that_means_nothing_is_refused(kind: kinds.Kind, message: str, text: str) -> None:
    """The message names the text; a typing error neither fills the memory nor overflows."""
    with pytest.raises(ValueError, match=re.escape(message.format(text))):
        kind.read(text)


def test_lists_are_cut_at_commas_outside_of_quotes() -> None:
    """A quoted item keeps its commas and its quotes; blanks around items go."""
    assert split_list('A, "b,c" ,D') == ("A", '"b,c"', "D")
    assert split_list('"say ""x"", y"') == ('"say ""x"", y"',)
    assert kinds.NUMBERS.read("2-3,0,3") == (0, 2, 3)


@pytest.mark.parametrize("text", ["", "A,,B", ",A", "A,", '"A', 'A,"B'])
def test_a_list_with_a_hole_or_an_open_quote_is_refused(text: str) -> None:
    """An empty item or an open quote is a mistake, not a name."""
    with pytest.raises(ValueError, match=r"empty item|not closed"):
        split_list(text)


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


def test_home_is_the_directory_that_the_shell_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tilde before the first slash is the home directory, also of a pipe; later ones are not.

    Neither another user's home nor an empty HOME is guessed.
    """
    monkeypatch.setenv("HOME", "/home/etl/")
    assert at_home("~/out") == "/home/etl/out"
    assert at_home("~") == "/home/etl"
    assert at_home("pipe:~/x.csv") == "pipe:/home/etl/x.csv"
    for path in ("/a/~/b", "./~", "out", "", "pipe:out"):
        assert at_home(path) == path
    with pytest.raises(ValueError, match="another user's home"):
        at_home("~bob/out")
    monkeypatch.setenv("HOME", "")
    with pytest.raises(ValueError, match="HOME is not set"):
        at_home("~/out")
