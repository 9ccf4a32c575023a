"""Facts about a table, before anything is planned."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from partition_planner.model import RowExtent, coalesced

extents = st.lists(
    st.builds(
        lambda first, length: RowExtent(first=first, last=first + length),
        st.integers(0, 60),
        st.integers(-3, 12),
    ),
    max_size=12,
)


def addresses(found: tuple[RowExtent, ...] | list[RowExtent]) -> set[int]:
    """Every address of the extents."""
    return {address for extent in found for address in range(extent.first, extent.last)}


@given(extents)
def test_coalesced_extents_are_the_same_addresses_in_the_fewest_pieces(
    given_extents: list[RowExtent],
) -> None:
    """Order, repeats, overlaps and touching ends disappear; no address does."""
    made = coalesced(given_extents)
    assert addresses(made) == addresses(given_extents)
    assert all(low.last < high.first for low, high in pairwise(made))
    assert all(extent.addresses for extent in made)
