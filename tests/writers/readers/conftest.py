"""Each test of a reader runs on what each text encoder wrote."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from encoders import random_batches as text_encoders


@pytest.fixture(params=text_encoders.NAMES)
def write(request: pytest.FixtureRequest) -> Callable[..., bytes]:
    """Write a batch in a dialect with one of the encoders, and return the whole file."""
    if request.param == "native":
        text_encoders.native_or_skip()
    return partial(text_encoders.written, request.param)


@pytest.fixture
def typed() -> Any:
    """A batch of numbers, times and bytes at their edges, and their texts."""
    from encoders import hostile_texts as typed_values

    return typed_values.batch(), typed_values.texts()
