"""Format-preserving encryption: FF1 of NIST SP 800-38G, by the library `libffx`.

It is well kept, passes NIST's known answers and refuses domains of fewer than 1,000,000 values, as
the revision of the standard demands. One value costs 25 to 30 microseconds, so each different value
of a batch is encrypted once.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from unloader.errors import ConfigError, OutputFailed, UsageError
from unloader.transforms.keyed_masks import Values, check_text
from unloader.transforms.model import EncryptColumn
from writers.arrow_compute import pc

KEY_BYTES = (16, 24, 32)
ALPHABETS = {
    "digits": string.digits,
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "letters": string.ascii_letters,
    "alphanumeric": string.digits + string.ascii_letters,
    "digits-lower": string.digits + string.ascii_lowercase,
    "digits-upper": string.digits + string.ascii_uppercase,
}
SMALLEST_DOMAIN = 1_000_000
REMEMBERED = 65_536
"""Values whose encryption stays in memory for later batches."""
_MOST_DIGITS = 38


def shortest(alphabet: str) -> int:
    """Return how many characters of an alphabet make a domain that is large enough."""
    length = 2
    while len(alphabet) ** length < SMALLEST_DOMAIN:
        length += 1
    return length


def is_whole_number(kind: pa.DataType) -> bool:
    """Return whether all values of a type are whole numbers."""
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal128(kind) and kind.scale == 0))


def check_encryption(step: EncryptColumn, field: pa.Field) -> pa.Field:
    """Return the column that comes out.

    Raises:
        UsageError: Its type, or an option, does not suit the cipher.
        ConfigError: The library is missing.
    """
    cipher_class()
    if not is_whole_number(field.type):
        check_text(field, "encrypted")
        if step.digits:
            raise UsageError(
                f"column {field.name} contains text, but digits is for whole numbers",
                "leave digits out",
            )
        return field
    least = shortest(string.digits)
    if not least <= step.digits <= _MOST_DIGITS or step.alphabet != "digits":
        raise UsageError(
            f"column {field.name} contains whole numbers, which are encrypted as {least} to "
            f"{_MOST_DIGITS} digits",
            "give digits = N, the largest number of digits of a value; and leave alphabet out",
        )
    if step.digits <= 18:
        return field.with_type(pa.int64())
    return field.with_type(pa.decimal128(step.digits, 0))


def encrypted(step: EncryptColumn, field: pa.Field, key: bytes) -> Values:
    """Return the function that encrypts a column.

    Raises:
        ConfigError: The key has the wrong length for AES.
    """
    if len(key) not in KEY_BYTES:
        raise ConfigError(
            f"the key {step.key} has {len(key)} bytes, but FF1 needs 16, 24 or 32",
            "make a key of 32 bytes: openssl rand -base64 32",
        )
    alphabet = ALPHABETS[step.alphabet]
    cipher = cipher_class()(key, alphabet=alphabet)
    tweak = step.tweak.encode()

    @lru_cache(maxsize=REMEMBERED)
    def of_text(text: str) -> str:
        found: str = cipher.encrypt(text, tweak=tweak)
        return found

    if is_whole_number(field.type):
        kind = check_encryption(step, field).type
        return lambda array: _numbers(array, step, of_text).cast(kind)
    own = _Text(step=step, alphabet=frozenset(alphabet), least=shortest(alphabet), encrypt=of_text)
    return lambda array: _each_once(array, own.encrypted)


def cipher_class() -> Any:
    """Return the class of FF1 ciphers.

    Raises:
        ConfigError: The library is missing.
    """
    try:
        from ffx import FF1
    except ImportError as error:
        raise ConfigError(
            f"the module {error.name!r} is not installed", "pip install 'unloader[masking]'"
        ) from error
    return FF1


class _Text:
    """Encrypts the characters of an alphabet in texts."""

    def __init__(
        self,
        *,
        step: EncryptColumn,
        alphabet: frozenset[str],
        least: int,
        encrypt: Callable[[str], str],
    ) -> None:
        self._step = step
        self._alphabet = alphabet
        self._least = least
        self._encrypt = encrypt

    def encrypted(self, text: str) -> str:
        """Return a text with others of its alphabet in their places.

        Raises:
            OutputFailed: It has other characters, or too few.
        """
        own = [letter for letter in text if letter in self._alphabet]
        if len(own) < self._least:
            raise _refused(
                self._step.ff1,
                f"has fewer than {self._least} characters of its alphabet, but FF1 needs "
                f"{SMALLEST_DOMAIN:,} possible values",
            )
        if len(own) == len(text):
            return self._encrypt(text)
        if self._step.others == "refuse":
            raise _refused(
                self._step.ff1,
                f"has characters that are not in the alphabet {self._step.alphabet}",
            )
        found = iter(self._encrypt("".join(own)))
        return "".join(next(found) if letter in self._alphabet else letter for letter in text)


def _numbers(array: pa.Array, step: EncryptColumn, encrypt: Callable[[str], str]) -> pa.Array:
    def one(value: str) -> str:
        if value.startswith("-") or len(value) > step.digits:
            raise _refused(step.ff1, f"is negative, or has more than {step.digits} digits")
        return encrypt(value.zfill(step.digits))

    texts = _each_once(pc.cast(array, pa.string()), one)
    return pc.cast(texts, pa.decimal128(step.digits, 0))


def _each_once(array: pa.Array, one: Callable[[str], str]) -> pa.Array:
    encoded = array.dictionary_encode()
    values = [one(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(values, array.type).take(encoded.indices)


def _refused(column: str, why: str) -> OutputFailed:
    return OutputFailed(
        f"a value of column {column} {why}",
        "exclude such rows with --filter, or use another mask; the value is not shown",
    )
