"""Tables as wide as the terminal, and numbers written short."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unloader.cli.display.render import folded, folded_table, ranges
from unloader.request.settings import parse_numbers

NUMBERS = st.sets(st.integers(0, 300), min_size=1)
WORDS = st.text(st.sampled_from("ab0123,-: "), max_size=60)


@given(NUMBERS)
def test_ranges_say_the_numbers_and_nothing_else(numbers: set[int]) -> None:
    """Every option that takes a list reads the shown text back as the same numbers."""
    assert parse_numbers(ranges(numbers)) == tuple(sorted(numbers))


def test_ranges_are_written_as_people_do() -> None:
    """Neighbours are a range, every nth number a stride if there are four or more."""
    assert ranges([8, 0, 1, 2, 3]) == "0-3,8"
    assert ranges(range(0, 64, 2)) == "0-62:2"
    assert ranges([0, 2, 4]) == "0,2,4"
    assert ranges([0, 8, 16, 17, 18]) == "0,8,16-18"
    assert ranges([]) == ""


@given(WORDS, st.integers(1, 40))
def test_folding_loses_nothing(text: str, width: int) -> None:
    """The lines hold every character but blanks, and only a single word is ever too long."""
    lines = folded(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(len(line) <= width or not set(line[:-1]) & set(", ") for line in lines)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=5), st.integers(50, 120))
def test_a_folded_table_is_no_wider_than_asked(
    rows: list[tuple[set[int], set[int]]], width: int
) -> None:
    """However long the lists in its columns are."""
    cells = [(ranges(one), "fixed", ranges(other)) for one, other in rows]
    text = folded_table(
        (">one", "what", "other"), cells, fold=frozenset({">one", "other"}), width=width
    )
    assert max(map(len, text.splitlines())) <= width
