"""Masks without a key: texts cut after some characters, and one constant for all values."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from unloader.errors import UsageError
from unloader.transforms.model import TruncateColumn
from unloader.transforms.steps import plain_array
from writers.arrow_compute import pc
from writers.schema import text_class

Texts = Callable[["pa.Array | pa.ChunkedArray"], pa.Array]
"""From texts to texts."""


def check_text(field: pa.Field, verb: str) -> None:
    """Return if a column holds plain text.

    Raises:
        UsageError: It holds something else, even if that is carried as text.
    """
    kind = field.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if not text_class(field):
            return
        what = f"contains a {text_class(field)} as text"
    else:
        what = f"has the type {kind}"
    raise UsageError(
        f"column {field.name} {what}, but only text can be {verb}",
        "cast it to string before, or use another mask",
    )


def truncated(step: TruncateColumn) -> Texts:
    """Return the function that keeps the first characters of texts, which may be in pieces."""

    def cut(array: pa.Array | pa.ChunkedArray) -> pa.Array:
        kind = array.type
        large = pa.types.is_large_string(kind)
        data = array.cast(pa.large_binary() if large else pa.binary())
        # What is kept is put together, and not what is cut off with it.
        head = plain_array(pc.binary_slice(data, 0, step.characters)).view(kind)
        # Where all these bytes are ASCII they are the characters, at a quarter of the cost.
        if pc.all(pc.string_is_ascii(head)).as_py() is not False:
            return head
        return plain_array(pc.utf8_slice_codeunits(array, 0, step.characters))

    return cut
