"""The one text of a value that hashes, tokens and shifts are computed from.

It does not depend on the type that a source has for a value: 42 in an int32, an int64, a
decimal(38,2) and as the text of a number is `42` everywhere, so what joined before still joins.
docs/transforms.md defines the texts. They are those that checksums of values are made of, but for
numbers with an exponent, whose digits are written out here.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import pyarrow as pa

from unloader.errors import OutputFailed, UsageError
from writers.arrow_compute import pc
from writers.content.plain import number_text
from writers.errors import WriteError
from writers.model import TextFormat
from writers.schema import text_class
from writers.text.text_values import plain_type, text_of

_MOST_DIGITS = 1_000
"""That an exponent is written out to; Oracle's reach 126."""


def check_canonical(field: pa.Field, verb: str) -> None:
    """Return if the values of a column have a canonical text.

    Args:
        field: The column.
        verb: What was to be done to it, for the error.

    Raises:
        UsageError: They have none; the hint names the way out.
    """
    kind = plain_type(field.type)
    if pa.types.is_floating(kind):
        raise UsageError(
            f"column {field.name} has the type {kind}, and binary floating point numbers cannot "
            f"be used to {verb}: databases write equal numbers as different texts",
            "cast it before, to a decimal such as decimal(18,2), or to string",
        )
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise UsageError(
            f"column {field.name} has the type {kind}, which cannot be used to {verb}",
            "cast it to string before, or redact it",
        )


def canonical(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return the canonical text of each value, null for null; bytes are their own.

    Raises:
        OutputFailed: A value has none; it is not shown.
    """
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return array
    number = text_class(field) == "number"
    if not number and not text_class(field) and pa.types.is_string(kind):
        return array
    try:
        texts = text_of(array, field.with_type(kind), TextFormat())
    except WriteError:
        raise OutputFailed(
            f"a value of column {field.name} has no text, so it cannot be masked",
            f"redact the column: --mask '{field.name}=redact'",
        ) from None
    if number:
        return _without_exponents(texts)
    if pa.types.is_decimal(kind) and kind.scale > 0:
        return pc.replace_substring_regex(texts, r"\.?0+$", "")
    return texts


def _without_exponents(texts: pa.Array) -> pa.Array:
    found = [None if text is None else _number(text) for text in texts.to_pylist()]
    return pa.array(found, texts.type)


def _number(text: str) -> str:
    if "E" in text or "e" in text:
        try:
            number = Decimal(text)
        except InvalidOperation:
            return text
        if number.is_finite() and abs(number.adjusted()) <= _MOST_DIGITS:
            text = f"{number:f}"
    return number_text(text.encode()).decode()
