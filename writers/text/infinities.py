"""Infinite dates and timestamps, in columns whose metadata says that they may be (`INFINITE`).

Arrow has no infinity; PostgreSQL and DuckDB have, and write it `infinity` and `-infinity`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from writers.arrow_compute import pc
from writers.text.refusals import Place

LETTERS = frozenset("-infinity")
_WORDS = ("infinity", "-infinity")


def infinite_texts(
    values: pa.Array, texts_of: Callable[[pa.Array], pa.Array], place: Place, *, masked: bool
) -> pa.Array:
    """Return the texts of dates or timestamps, infinities included, null for null.

    Args:
        values: Of a column that may be infinite.
        texts_of: Gives the texts of finite values.
        place: Named when a value is refused.
        masked: The column follows a mask, which can show no infinity.

    Raises:
        ValueNotRepresentable: A value is infinite, and the column follows a mask.
    """
    if not holds_infinity(values):
        return texts_of(values)
    ticks, greatest = _ticks(values)
    above, below = pc.equal(ticks, greatest), pc.equal(ticks, pc.negate(greatest))
    infinite = pc.or_(above, below)
    if masked:
        place.refuse_where(
            infinite,
            "the value is infinite, which no date format can show",
            f"write the column as exact text with --as-text {place.column}, or leave it out with "
            "--exclude",
        )
    texts = texts_of(pc.if_else(infinite, pa.scalar(None, values.type), values))
    return pc.if_else(above, _WORDS[0], pc.if_else(below, _WORDS[1], texts))


def holds_infinity(values: pa.Array) -> bool:
    """Tell whether dates or timestamps of a column that may be infinite are so."""
    ticks, greatest = _ticks(values)
    ends = pc.min_max(ticks).as_py()
    return ends["min"] is not None and greatest.as_py() in (ends["max"], -ends["min"])


def _ticks(values: pa.Array) -> tuple[pa.Array, pa.Scalar]:
    integer = pa.int32() if values.type.bit_width == 32 else pa.int64()
    return values.view(integer), pa.scalar(2 ** (values.type.bit_width - 1) - 1, integer)
