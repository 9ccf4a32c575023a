"""Levels of parallelism as people write them."""

from __future__ import annotations

import pytest

from unloader.request.settings import levels_text, parse_levels, parse_percent, percent_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4", (4,)),
        ("1,2,4,8", (1, 2, 4, 8)),
        (" 8 , 4 ", (8, 4)),
        ("1..4", (1, 2, 3, 4)),
        ("4..1", (4, 3, 2, 1)),
        ("32..4:-4,3,2", (32, 28, 24, 20, 16, 12, 8, 4, 3, 2)),
        ("1..6:2", (1, 3, 5)),
        ("1..6:+2", (1, 3, 5)),
        ("5..5", (5,)),
        ("4,2..6:2,4", (4, 2, 6)),
        ("65535", (65535,)),
    ],
)
def test_levels_are_single_or_ranges_with_a_step(text: str, expected: tuple[int, ...]) -> None:
    """In the order written, each once; a range that ends lower counts down."""
    assert parse_levels(text) == expected
    assert parse_levels(levels_text(expected)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a level is empty"),
        ("1,,2", "a level is empty"),
        ("1,2,", "a level is empty"),
        ("all", "'all' is not a level"),
        ("1-4", "'1-4' is not a level"),
        ("1..", "'1..' is not a level"),
        ("1..4:", "'1..4:' is not a level"),
        ("1.5", "'1.5' is not a level"),
        ("-1", "'-1' is not a level"),
        ("٣", "'٣' is not a level"),
        ("9999999999999", "is not a level"),
        ("0", "0 is not a number of workers"),
        ("65536", "65536 is not a number of workers"),
        ("4..0:-2", "0 is not a number of workers"),
        ("1..8:-2", "the step of 1..8:-2 does not lead from 1 to 8; write 1..8:+2"),
        ("8..1:2", "does not lead from 8 to 1"),
        ("1..8:0", "the step of 1..8:0"),
        ("1..9999", "there are more than 1000 levels"),
        ("1..999999999", "there are more than 1000 levels"),
    ],
)
def test_what_is_no_level_is_refused_with_its_text(text: str, message: str) -> None:
    """The message names the item, and a huge range does not fill the memory."""
    with pytest.raises(ValueError, match=r"level|step|workers") as caught:
        parse_levels(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("75%", 0.75), ("75", 0.75), ("2.5 %", 0.025), ("0", 0.0)]
)
def test_percent(text: str, expected: float) -> None:
    """With or without the sign; it is written so that it is read as the same."""
    assert parse_percent(text) == pytest.approx(expected)
    assert parse_percent(percent_text(expected)) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["", "%", "-5%", "100%", "1e1", "0,5", "nan", "5%%", "٥", "0.75", "1", "0.05"]
)
def test_what_is_no_percentage_is_refused(text: str) -> None:
    """Also a value of 100 % or more, and one that may be meant as a share: 0.75 is not 0.75 %."""
    with pytest.raises(ValueError, match=r"percentage|below 100|share"):
        parse_percent(text)
