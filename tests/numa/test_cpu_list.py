"""The kernel's lists of numbers, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numa.kernel_files import cpu_list_text, parse_cpu_list
from numa.model import TopologyError


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", ()),
        ("\n", ()),
        ("0\n", (0,)),
        ("0-3,8\n", (0, 1, 2, 3, 8)),
        ("8,0-1", (0, 1, 8)),
        ("1-2,2-3", (1, 2, 3)),
        (" 4 , 6 ", (4, 6)),
    ],
)
def test_list_is_parsed(text: str, numbers: tuple[int, ...]) -> None:
    """A kernel list gives its numbers, ascending and each once."""
    assert parse_cpu_list(text) == numbers


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "0-",
        "-3",
        "3-0",
        "0,,2",
        "0-3;8",
        "0-9999999999",
        "٣",
        "1_0",
        "0x1",
        "0-3:1/2",
        "9" * 5000,
    ],
)
def test_garbage_list_is_refused(text: str) -> None:
    """Text that is not a list is refused and quoted, cut to fit a line."""
    with pytest.raises(TopologyError, match="not a list") as caught:
        parse_cpu_list(text)
    assert repr(text[:80]) in str(caught.value)


def test_list_that_would_take_hours_is_refused() -> None:
    """A million numbers named a thousand times over are refused, not counted."""
    with pytest.raises(TopologyError, match="not a list"):
        parse_cpu_list(",".join(["0-999999"] * 1000))


@given(st.frozensets(st.integers(0, 300)))
def test_list_survives_the_way_to_text_and_back(numbers: frozenset[int]) -> None:
    """Text and parser are each other's inverse, and the text is the kernel's shortest."""
    text = cpu_list_text(numbers)
    assert parse_cpu_list(text) == tuple(sorted(numbers))
    starts = sum(number - 1 not in numbers for number in numbers)
    assert len(text.split(",")) == max(starts, 1)
