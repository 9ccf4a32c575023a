"""HMAC-SHA-256 of the canonical texts of a column, and what is made of it: hashes and tokens.

Each different value of a batch is computed once. One value costs 1.1 microseconds of CPU, twice
`hashlib.sha256`; `hmac.digest` costs 2.2, since OpenSSL looks the algorithm up at each call
(measured, Python 3.11 and OpenSSL 3).
"""

from __future__ import annotations

import sys
from array import array as numbers
from base64 import b64encode
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import pairwise

import pyarrow as pa

from unloader.transforms.masking.canonical import canonical
from unloader.transforms.model import HashColumn, TokenizeColumn
from writers.arrow_compute import pc

DIGEST_BYTES = 32
_BLOCK_BYTES = 64
_TOKEN_DIGITS = 32
_POSITIVE = 2**63 - 1

Values = Callable[[pa.Array], pa.Array]
"""From a column to the column in its place."""


class Hmac:
    """HMAC-SHA-256 (RFC 2104, FIPS 180-4) of many messages under one key."""

    def __init__(self, key: bytes) -> None:
        padded = (sha256(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(
            _BLOCK_BYTES, b"\0"
        )
        self._inner = bytes(byte ^ 0x36 for byte in padded)
        self._outer = bytes(byte ^ 0x5C for byte in padded)

    def digests(self, messages: Iterable[bytes]) -> list[bytes]:
        """Return the 32 bytes of each message."""
        inner, outer = self._inner, self._outer
        return [sha256(outer + sha256(inner + each).digest()).digest() for each in messages]


def derived(key: bytes, purpose: str, domain: str) -> bytes:
    """Return the key for one purpose and domain, so that no two of them give related values."""
    label = f"unloader {purpose} 1\0{domain}"
    return Hmac(key).digests([label.encode()])[0]


def each_once(texts: pa.Array, made: Callable[[list[bytes]], pa.Array]) -> pa.Array:
    """Return what is made of each value's bytes, null for null; each value is made once."""
    encoded = texts.dictionary_encode()
    values = encoded.dictionary
    binary = pa.large_binary() if pa.types.is_large_string(values.type) else pa.binary()
    if not pa.types.is_binary(values.type) and not pa.types.is_large_binary(values.type):
        values = values.cast(binary)
    return made(values.to_pylist()).take(encoded.indices)


def hashed(step: HashColumn, field: pa.Field, key: bytes) -> Values:
    """Return the function that masks a column by a keyed hash."""
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
    """Return the function that masks a column by tokens."""
    hmac = Hmac(derived(key, "tokenize", step.domain))
    form = {"text": _plain, "uuid": _uuids, "integer": _integers}[step.form]
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
    """Return texts of one width, given in one piece."""
    if not count:
        return pa.array([], pa.string())
    kind = pa.binary(len(data) // count)
    found = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])
    return found.cast(pa.binary()).cast(pa.string())


def _digits(digests: list[bytes]) -> bytearray:
    return bytearray(b"".join(each[: _TOKEN_DIGITS // 2] for each in digests).hex().encode())


def _plain(digests: list[bytes]) -> pa.Array:
    return fixed_texts(bytes(_digits(digests)), len(digests))


def _integers(digests: list[bytes]) -> pa.Array:
    return leading_integers(digests)


_VARIANT = bytes.maketrans(b"0123456789abcdef", b"89ab" * 4)


def _uuids(digests: list[bytes]) -> pa.Array:
    """Return UUIDs of version 8 (RFC 9562), whose bits are the maker's but for six."""
    digits = _digits(digests)
    digits[12::_TOKEN_DIGITS] = b"8" * len(digests)
    digits[16::_TOKEN_DIGITS] = digits[16::_TOKEN_DIGITS].translate(_VARIANT)
    texts = fixed_texts(bytes(digits), len(digests))
    ends = (0, 8, 12, 16, 20, 32)
    parts = [pc.utf8_slice_codeunits(texts, start, stop) for start, stop in pairwise(ends)]
    return pc.binary_join_element_wise(*parts, "-")
