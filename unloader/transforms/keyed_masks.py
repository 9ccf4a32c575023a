"""Masks by a key: HMAC-SHA-256 of the canonical text of a value, as a hash or a token.

The canonical text does not depend on the type that a source has for a value: 42 in an int32, an
int64, a decimal(38,2) and as the text of a number is `42` everywhere, so what joined before still
joins. docs/transforms.md defines the texts. They are the texts that checksums of values use, except
for numbers with an exponent, whose digits are written out here.

Each different value of a batch is computed once. One value costs 1.1 microseconds of CPU, twice
`hashlib.sha256`; `hmac.digest` costs 2.2, since OpenSSL looks the algorithm up at each call
(measured, Python 3.11 and OpenSSL 3).
"""

from __future__ import annotations

import sys
from array import array as numbers
from base64 import b64encode
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from itertools import pairwise

import pyarrow as pa

from unloader.errors import OutputFailed, UsageError
from unloader.transforms.model import HashColumn, TokenizeColumn
from writers.content.plain import number_text
from writers.errors import WriteError
from writers.model import TextFormat
from writers.schema import pc, text_class
from writers.text.text_values import plain_type, text_of

DIGEST_BYTES = 32
_BLOCK_BYTES = 64
_TOKEN_DIGITS = 32
_POSITIVE = 2**63 - 1
_VARIANT = bytes.maketrans(b"0123456789abcdef", b"89ab" * 4)
_MOST_DIGITS = 1_000
"""That an exponent is written out to; Oracle's reach 126."""

Values = Callable[[pa.Array], pa.Array]
"""From a column to the column in its place."""


def check_text(field: pa.Field, verb: str) -> None:
    """Refuse a column that does not hold plain text, even if it is carried as text."""
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


def check_canonical(field: pa.Field, verb: str) -> None:
    """Refuse a column without canonical texts of its values; `verb` is the requested operation."""
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
        OutputFailed: A value without a canonical text, which is not shown.
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


class Hmac:
    """HMAC-SHA-256 (RFC 2104, FIPS 180-4) of many messages under one key."""

    def __init__(self, key: bytes) -> None:
        padded = (sha256(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(
            _BLOCK_BYTES, b"\0"
        )
        self._inner = bytes(byte ^ 0x36 for byte in padded)
        self._outer = bytes(byte ^ 0x5C for byte in padded)

    def digests(self, messages: Iterable[bytes]) -> list[bytes]:
        inner, outer = self._inner, self._outer
        return [sha256(outer + sha256(inner + each).digest()).digest() for each in messages]


def derived(key: bytes, purpose: str, domain: str) -> bytes:
    """Return the key for one purpose and domain, so that no two of them give related values."""
    label = f"unloader {purpose} 1\0{domain}"
    return Hmac(key).digests([label.encode()])[0]


def each_once(texts: pa.Array, made: Callable[[list[bytes]], pa.Array]) -> pa.Array:
    """Apply a function to the bytes of each different value once; null stays null."""
    encoded = texts.dictionary_encode()
    values = encoded.dictionary
    binary = pa.large_binary() if pa.types.is_large_string(values.type) else pa.binary()
    if not pa.types.is_binary(values.type) and not pa.types.is_large_binary(values.type):
        values = values.cast(binary)
    return made(values.to_pylist()).take(encoded.indices)


def hashed(step: HashColumn, field: pa.Field, key: bytes) -> Values:
    hmac = Hmac(key)

    def made(messages: list[bytes]) -> pa.Array:
        digests = hmac.digests(messages)
        if step.encoding == "base64":
            texts = fixed_texts(b"".join(map(b64encode, digests)), len(digests))
        else:
            texts = fixed_texts(b"".join(digests).hex().encode(), len(digests))
        return pc.utf8_slice_codeunits(texts, 0, step.length) if step.length else texts

    return lambda array: each_once(canonical(array, field), made)


def tokenized(step: TokenizeColumn, field: pa.Field, key: bytes) -> Values:
    hmac = Hmac(derived(key, "tokenize", step.domain))
    form = {"text": _plain, "uuid": _uuids, "integer": leading_integers}[step.form]
    return lambda array: each_once(
        canonical(array, field), lambda messages: form(hmac.digests(messages))
    )


def leading_integers(digests: list[bytes]) -> pa.Array:
    """Return the first 8 bytes of each digest, without the highest bit, as int64."""
    found = numbers("q", b"".join(digests))
    if sys.byteorder == "little":
        found.byteswap()
    held = pa.py_buffer(found[:: DIGEST_BYTES // 8].tobytes())
    values = pa.Array.from_buffers(pa.int64(), len(digests), [None, held])
    return pc.bit_wise_and(values, _POSITIVE)


def fixed_texts(data: bytes, count: int) -> pa.Array:
    if not count:
        return pa.array([], pa.string())
    kind = pa.binary(len(data) // count)
    found = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])
    return found.cast(pa.binary()).cast(pa.string())


def _digits(digests: list[bytes]) -> bytearray:
    return bytearray(b"".join(each[: _TOKEN_DIGITS // 2] for each in digests).hex().encode())


def _plain(digests: list[bytes]) -> pa.Array:
    return fixed_texts(bytes(_digits(digests)), len(digests))


def _uuids(digests: list[bytes]) -> pa.Array:
    """Return UUIDs of version 8 (RFC 9562), which fixes six of their bits."""
    digits = _digits(digests)
    digits[12::_TOKEN_DIGITS] = b"8" * len(digests)
    digits[16::_TOKEN_DIGITS] = digits[16::_TOKEN_DIGITS].translate(_VARIANT)
    texts = fixed_texts(bytes(digits), len(digests))
    ends = (0, 8, 12, 16, 20, 32)
    parts = [pc.utf8_slice_codeunits(texts, start, stop) for start, stop in pairwise(ends)]
    return pc.binary_join_element_wise(*parts, "-")
