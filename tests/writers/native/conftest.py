"""The native encoder's tests run where it was built."""

from __future__ import annotations

import pytest
from encoders import random_batches as text_encoders


@pytest.fixture(autouse=True)
def _native_is_built() -> None:
    text_encoders.native_or_skip()
