r"""Nested values as compact JSON (RFC 8259), built column by column.

Numbers keep every digit; NaN and the infinities, which JSON has not, are strings. Characters
outside ASCII stay as they are. Dates, times, intervals, binary values and UUIDs are strings of
their canonical text. A map with text keys is an object in the order of its entries, any other an
array of [key,value] pairs.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from writers.schema import pc
from writers.text.string_arrays import joined, value_bytes

_SHORT = {"\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r"}

Scalar = Callable[[pa.Array], tuple[pa.Array, bool]]
"""Gives the text of values that are not nested, and whether JSON takes it without quotes."""


def json_texts(values: pa.Array, scalar: Scalar) -> pa.Array:
    """Return the JSON of each value as large_string; a null is the text `null`."""
    kind = values.type
    if pa.types.is_struct(kind):
        texts = _struct_texts(values, scalar)
    elif pa.types.is_map(kind):
        texts = _map_texts(values, scalar)
    elif pa.types.is_nested(kind):
        texts = joined("[", _listed(values, json_texts(values.flatten(), scalar)), "]")
    else:
        texts, bare = scalar(values)
        texts = pc.cast(texts, pa.large_string())
        if bare:
            special = pc.match_substring_regex(texts, "^(NaN|-?Infinity)$")
            texts = pc.if_else(special, joined('"', texts, '"'), texts)
        else:
            texts = joined('"', _escaped(texts), '"')
    if not values.null_count and not texts.null_count:
        return texts
    return pc.fill_null(pc.if_else(values.is_valid(), texts, pa.scalar(None, texts.type)), "null")


def _struct_texts(values: pa.Array, scalar: Scalar) -> pa.Array:
    pieces: list[pa.Array | str] = []
    # Flattened, so that all values under a null struct are null, too.
    for field, child in zip(values.type, values.flatten(), strict=True):
        name = _escaped(pa.array([field.name]))[0].as_py()
        pieces += [f'{"," if pieces else ""}"{name}":', json_texts(child, scalar)]
    if not pieces:
        return pa.array(["{}"] * len(values), pa.large_string())
    return joined("{", *pieces, "}")


def _map_texts(values: pa.Array, scalar: Scalar) -> pa.Array:
    kind = values.type
    pair = pa.struct([pa.field("key", kind.key_type, False), pa.field("value", kind.item_type)])
    lists = values.cast(pa.list_(pair))
    pairs = lists.flatten()
    keys, items = (json_texts(pairs.field(index), scalar) for index in (0, 1))
    if pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type):
        return joined("{", _listed(lists, joined(keys, ":", items)), "}")
    return joined("[", _listed(lists, joined("[", keys, ",", items, "]")), "]")


def _listed(lists: pa.Array, elements: pa.Array) -> pa.Array:
    """Join with commas the texts of each list's elements; null lists have no elements here."""
    lengths = pc.cast(pc.fill_null(pc.list_value_length(lists), 0), pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    return pc.binary_join(
        pa.LargeListArray.from_arrays(offsets, elements), pa.scalar(",", elements.type)
    )


def _escaped(texts: pa.Array) -> pa.Array:
    data = bytes(value_bytes(texts))
    # The backslash first: the other replacements bring new ones.
    for character in ("\\", '"'):
        if character.encode() in data:
            texts = pc.replace_substring(texts, character, "\\" + character)
    for code in sorted(code for code in set(data) if code < 0x20):
        text = _SHORT.get(chr(code), f"\\u{code:04x}")
        texts = pc.replace_substring(texts, chr(code), text)
    return texts
