"""The text of manifests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unloader.json_text import indented

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_it_is_the_text_of_the_standard_library(value: Any) -> None:
    """To the byte, whatever is in it."""
    assert indented(value) == json.dumps(value, ensure_ascii=False, indent=2)


@pytest.mark.parametrize("value", [[], {}, [[]], {"a": {}}, '日本\x7f\u2028"\\', 1e300, -0.0, True])
def test_what_is_empty_or_odd_stands_as_there(value: Any) -> None:
    """Empty objects and lists take no line of their own."""
    assert indented(value) == json.dumps(value, ensure_ascii=False, indent=2)
