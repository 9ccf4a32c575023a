"""From a mask and the columns that it finds to the columns that it leaves, and how rows follow.

Format-preserving encryption: FF1 of NIST SP 800-38G, by the library `libffx`.

It is well kept, passes NIST's known answers and refuses domains of fewer than 1,000,000 values, as
the revision of the standard demands. One value costs 25 to 30 microseconds, so each different value
of a batch is encrypted once.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, cast

import pyarrow as pa
from msgspec.structs import replace

from unloader.errors import ConfigError, OutputFailed, UsageError
from unloader.transforms.column_steps import (
    Columns,
    Work,
    found,
    names_of,
    on_one,
    plain_array,
    plain_field,
    setting,
    value_of,
    with_column,
)
from unloader.transforms.date_masks import check_dates, shifted, truncated_dates
from unloader.transforms.keyed_masks import (
    Values,
    check_canonical,
    check_text,
    hashed,
    tokenized,
)
from unloader.transforms.model import (
    EncryptColumn,
    HashColumn,
    Mask,
    Masked,
    Method,
    RedactColumn,
    ShiftDates,
    TokenizeColumn,
    TruncateColumn,
    TruncateDates,
)
from writers.schema import pc

Keys = Mapping[str, bytes]

_CHARACTERS = {"hex": 64, "base64": 44}
_LEAST_CHARACTERS = 8
_MOST_DAYS = 36_525

STAND_IN = bytes(32)
"""In the place of a key where a step is only checked, and no row will come."""


def column_of(step: Mask) -> str:
    """Return the name of the column that a mask is for, as it was typed."""
    return str(getattr(step, _field(step)))


def method_of(step: Mask) -> Method:
    return cast(Method, _field(step).replace("_", "-"))


def masked(step: Mask, columns: Columns, keys: Keys | None) -> tuple[Columns, Work]:
    """Mask one column; without `keys` the step is only checked.

    Raises:
        UsageError: The column or an option is wrong.
        ConfigError: A key is missing or invalid.
    """
    name = column_of(step)
    index = found(names_of(columns), name, f"--mask {name}={method_of(step)}")
    column = columns[index]
    field = plain_field(column.field)
    if isinstance(step, ShiftDates):
        return _shift(step, columns, index, keys)
    out, function, detail = _one_column(step, field, keys)
    changed = replace(
        column,
        field=out,
        masked=Masked(method=method_of(step), detail=detail, key_name=getattr(step, "key", "")),
        clear=frozenset(),
        origin=None,
    )
    after = with_column(columns, index, changed)
    if isinstance(step, RedactColumn):
        value = value_of(step.value, out.type, f"redact {column.name}")
        after = with_column(columns, index, replace(changed, inputs=()))
        return after, setting(index, lambda arrays, rows: pa.repeat(value, rows))
    if isinstance(step, TruncateColumn) and not pa.types.is_dictionary(column.field.type):
        # Without what is cut off, the pieces of a column are put together.
        return after, setting(index, lambda arrays, _: plain_array(function(arrays[index])))
    return after, on_one(index, function)


def _field(step: Mask) -> str:
    return step.__struct_fields__[0]


def _one_column(step: Mask, field: pa.Field, keys: Keys | None) -> tuple[pa.Field, Values, str]:
    """Return the masked column's field, its function, and its description in a manifest."""
    if isinstance(step, HashColumn):
        check_canonical(field, "make hashes")
        most = _CHARACTERS[step.encoding]
        if step.length and not _LEAST_CHARACTERS <= step.length <= most:
            raise UsageError(
                f"hmac keeps {step.length} characters of {field.name}",
                f"keep {_LEAST_CHARACTERS} to {most}; to keep all, leave length out",
            )
        detail = f"HMAC-SHA-256, {step.length or most} characters of {step.encoding}"
        return _new(field, pa.string()), hashed(step, field, _key(step.key, keys)), detail
    if isinstance(step, TokenizeColumn):
        check_canonical(field, "make tokens")
        kind = pa.int64() if step.form == "integer" else pa.string()
        detail = step.form + (f", domain {step.domain}" if step.domain else "")
        return _new(field, kind), tokenized(step, field, _key(step.key, keys)), detail
    if isinstance(step, TruncateColumn):
        check_text(field, "truncated")
        if step.characters < 1:
            raise UsageError(
                f"truncate would keep no character of {field.name}",
                "keep at least 1, or redact the column",
            )
        characters = step.characters
        cut = partial(pc.utf8_slice_codeunits, start=0, stop=characters)
        return _new(field, field.type), cut, f"{characters} characters"
    if isinstance(step, TruncateDates):
        check_dates(field)
        return field, truncated_dates(step, field), step.to
    if isinstance(step, EncryptColumn):
        out = check_encryption(step, field)
        detail = f"FF1, {step.digits or step.alphabet}" + (" digits" if step.digits else "")
        return _new(field, out.type), encrypted(step, field, _key(step.key, keys)), detail
    if not isinstance(step, RedactColumn):
        raise TypeError(type(step))
    if step.value is None:
        return field, lambda array: array, "NULL"
    return _new(field, field.type), lambda array: array, "a constant"


def _shift(
    step: ShiftDates, columns: Columns, index: int, keys: Keys | None
) -> tuple[Columns, Work]:
    by = found(names_of(columns), step.by, "shift-date by")
    column = columns[index]
    field, subject = plain_field(column.field), plain_field(columns[by].field)
    check_dates(field)
    check_canonical(subject, "shift dates")
    if by == index or not 1 <= step.days <= _MOST_DAYS:
        raise UsageError(
            f"shift-date of {column.name} needs another column in by, and 1 to {_MOST_DAYS:,} in "
            "days",
            "give by, the column that identifies the subject, and days, the largest shift",
        )
    function = shifted(step, field, subject, _key(step.key, keys))
    changed = replace(
        column,
        field=field,
        inputs=tuple(dict.fromkeys((*column.inputs, *columns[by].inputs))),
        masked=Masked(
            method="shift-date", detail=f"up to {step.days} days, by {step.by}", key_name=step.key
        ),
        clear=frozenset(),
        origin=None,
    )
    return with_column(columns, index, changed), setting(
        index, lambda arrays, _: function(plain_array(arrays[index]), plain_array(arrays[by]))
    )


def _key(name: str, keys: Keys | None) -> bytes:
    if keys is None:
        return STAND_IN
    if name not in keys:
        raise ConfigError(f"the masking key {name} is missing", "give its place with --mask-key")
    return keys[name]


def _new(field: pa.Field, kind: pa.DataType) -> pa.Field:
    # Without metadata, because the class of a text and infinite dates do not apply any more.
    return pa.field(field.name, kind)


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
    length = 2
    while len(alphabet) ** length < SMALLEST_DOMAIN:
        length += 1
    return length


def is_whole_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal128(kind) and kind.scale == 0))


def check_encryption(step: EncryptColumn, field: pa.Field) -> pa.Field:
    """Return the column that comes out of an encryption."""
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
    own, least = frozenset(alphabet), shortest(alphabet)

    def of_any(text: str) -> str:
        letters = [letter for letter in text if letter in own]
        if len(letters) < least:
            raise _refused(
                step.ff1,
                f"has fewer than {least} characters of its alphabet, but FF1 needs "
                f"{SMALLEST_DOMAIN:,} possible values",
            )
        if len(letters) == len(text):
            return of_text(text)
        if step.others == "refuse":
            why = f"has characters that are not in the alphabet {step.alphabet}"
            raise _refused(step.ff1, why)
        found = iter(of_text("".join(letters)))
        return "".join(next(found) if letter in own else letter for letter in text)

    return lambda array: _each_once(array, of_any)


def cipher_class() -> Any:
    try:
        from ffx import FF1
    except ImportError as error:
        raise ConfigError(
            f"the module {error.name!r} is not installed", "pip install 'unloader[masking]'"
        ) from error
    return FF1


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
