"""Masks: from a mask and the columns that it finds to the columns that it leaves, and the values.

Hashes and tokens are HMAC-SHA-256 of the canonical text of a value.

The canonical text does not depend on the type that a source has for a value: 42 in an int32, an
int64, a decimal(38,2) and as the text of a number is `42` everywhere, so what joined before still
joins. docs/transforms.md defines the texts. They are the texts that checksums of values use, except
for numbers with an exponent, whose digits are written out here.

Each different value of a batch is computed once. One value costs 1.1 microseconds of CPU, twice
`hashlib.sha256`; `hmac.digest` costs 2.2, since OpenSSL looks the algorithm up at each call
(measured, Python 3.11 and OpenSSL 3).

The calendar of dates comes from `writers.text.mask_texts`, in integers, because the functions of
Arrow are silently wrong for years past 32767. Infinite dates and timestamps stay infinite.

Format-preserving encryption is FF1 of NIST SP 800-38G, by the library `libffx`. It is well kept,
passes NIST's known answers and refuses domains of fewer than 1,000,000 values, as the revision of
the standard demands. One value costs 25 to 30 microseconds.
"""

from __future__ import annotations

import string
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from unloader.errors import ConfigError, OutputFailed, UsageError
from unloader.transforms.column_steps import (
    Columns,
    Work,
    found,
    moment_ticks,
    names_of,
    on_one,
    plain_array,
    plain_field,
    setting,
    value_of,
    with_column,
)
from unloader.transforms.model import Masked, Step
from writers.content.sums import number_text
from writers.errors import WriteError
from writers.model import TextFormat
from writers.schema import has_infinities, pc, text_class
from writers.text.mask_texts import DAY_SECONDS, UNIT_DIGITS, Civil
from writers.text.text_values import plain_type, text_of

Keys = Mapping[str, bytes]
Values = Callable[[pa.Array], pa.Array]
"""From a column to the column in its place."""

STAND_IN = bytes(32)
"""In the place of a key where a step is only checked, and no row will come."""

KEY_BYTES = (16, 24, 32)
SMALLEST_DOMAIN = 1_000_000
REMEMBERED = 65_536
"""Values whose encryption stays in memory for later batches."""

_CHARACTERS = {"hex": 64, "base64": 44}
_LEAST_CHARACTERS = 8
_MOST_DAYS = 36_525
_MOST_DIGITS = 38
_BLOCK_BYTES = 64
_TOKEN_BYTES = 16
_POSITIVE = 2**63 - 1
_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
_MOST_EXPONENT = 1_000
"""That an exponent is written out to; Oracle's reach 126."""

ALPHABETS = {
    "digits": string.digits,
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "letters": string.ascii_letters,
    "alphanumeric": string.digits + string.ascii_letters,
    "digits-lower": string.digits + string.ascii_lowercase,
    "digits-upper": string.digits + string.ascii_uppercase,
}


def masked(step: Step, columns: Columns, keys: Keys | None) -> tuple[Columns, Work]:
    """Mask one column; without `keys` the step is only checked."""
    index = found(names_of(columns), step.column, f"--mask {step.column}={step.step}")
    column = columns[index]
    field = plain_field(column.field)
    key = STAND_IN if keys is None else keys.get(step.key_name, b"")
    if step.key_name and not key:
        raise ConfigError(
            f"the masking key {step.key_name} is missing", "give its place with --mask-key"
        )
    out, inputs = pa.field(field.name, field.type), column.inputs
    """Without metadata, because the class of a text and infinite dates do not apply any more."""
    if step.step == "hmac":
        check_canonical(field, "make hashes")
        most = _CHARACTERS[step.encoding]
        if step.length and not _LEAST_CHARACTERS <= step.length <= most:
            raise UsageError(
                f"hmac keeps {step.length} characters of {field.name}",
                f"keep {_LEAST_CHARACTERS} to {most}; to keep all, leave length out",
            )
        out = out.with_type(pa.string())
        detail = f"HMAC-SHA-256, {step.length or most} characters of {step.encoding}"
        work = on_one(index, hashed(step, field, key))
    elif step.step == "tokenize":
        check_canonical(field, "make tokens")
        out = out.with_type(pa.int64() if step.form == "integer" else pa.string())
        detail = step.form + (f", domain {step.domain}" if step.domain else "")
        work = on_one(index, tokenized(step, field, key))
    elif step.step == "truncate":
        check_text(field, "truncated")
        detail = f"{step.characters} characters"
        cut = partial(pc.utf8_slice_codeunits, start=0, stop=step.characters)
        work = on_one(index, cut)
        if not pa.types.is_dictionary(column.field.type):
            # The texts are cut first, so that less is copied when the pieces are joined.
            work = setting(index, lambda arrays, _: plain_array(cut(arrays[index])))
    elif step.step == "truncate-date":
        check_dates(field)
        out, detail = field, step.to
        work = on_one(index, truncated_dates(step, field))
    elif step.step == "shift-date":
        by = found(names_of(columns), step.by, "shift-date by")
        subject = plain_field(columns[by].field)
        check_dates(field)
        check_canonical(subject, "shift dates")
        if by == index or not 1 <= step.days <= _MOST_DAYS:
            raise UsageError(
                f"shift-date of {column.name} needs another column in by, and 1 to {_MOST_DAYS:,} "
                "in days",
                "give by, the column that identifies the subject, and days, the largest shift",
            )
        out, detail = field, f"up to {step.days} days, by {step.by}"
        inputs = tuple(dict.fromkeys((*column.inputs, *columns[by].inputs)))
        shift = shifted(step, field, subject, key)
        work = setting(
            index, lambda arrays, _: shift(plain_array(arrays[index]), plain_array(arrays[by]))
        )
    elif step.step == "ff1":
        out = out.with_type(check_encryption(step, field).type)
        detail = f"FF1, {step.digits or step.alphabet}" + (" digits" if step.digits else "")
        work = on_one(index, encrypted(step, field, key))
    else:
        out, inputs = (field if step.value is None else out), ()
        detail = "NULL" if step.value is None else "a constant"
        value = value_of(step.value, out.type, f"redact {column.name}")
        work = setting(index, lambda arrays, rows: pa.repeat(value, rows))
    changed = replace(
        column,
        field=out,
        inputs=inputs,
        masked=Masked(method=step.step, detail=detail, key_name=step.key_name),
        clear=frozenset(),
        origin=None,
    )
    return with_column(columns, index, changed), work


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
    """Return the canonical text of each value, null for null; bytes are their own."""
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
        found = [None if text is None else _number(text) for text in texts.to_pylist()]
        return pa.array(found, texts.type)
    if pa.types.is_decimal(kind) and kind.scale > 0:
        return pc.replace_substring_regex(texts, r"\.?0+$", "")
    return texts


def _number(text: str) -> str:
    if "E" in text or "e" in text:
        try:
            number = Decimal(text)
        except InvalidOperation:
            return text
        if number.is_finite() and abs(number.adjusted()) <= _MOST_EXPONENT:
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


def hashed(step: Step, field: pa.Field, key: bytes) -> Values:
    hmac = Hmac(key)

    def made(messages: list[bytes]) -> pa.Array:
        digests = hmac.digests(messages)
        is_base64 = step.encoding == "base64"
        texts = (b64encode(each).decode() if is_base64 else each.hex() for each in digests)
        return pa.array([text[: step.length or None] for text in texts], pa.string())

    return lambda array: each_once(canonical(array, field), made)


def tokenized(step: Step, field: pa.Field, key: bytes) -> Values:
    hmac = Hmac(derived(key, "tokenize", step.domain))

    def made(messages: list[bytes]) -> pa.Array:
        digests = hmac.digests(messages)
        if step.form == "integer":
            return leading_integers(digests)
        texts = [each[:_TOKEN_BYTES].hex() for each in digests]
        if step.form == "uuid":
            # Of version 8 (RFC 9562), which fixes six of the bits.
            texts = [
                f"{t[:8]}-{t[8:12]}-8{t[13:16]}-{_VARIANTS[t[16]]}{t[17:20]}-{t[20:]}"
                for t in texts
            ]
        return pa.array(texts, pa.string())

    return lambda array: each_once(canonical(array, field), made)


def leading_integers(digests: list[bytes]) -> pa.Array:
    """Return the first 8 bytes of each digest, without the highest bit, as int64."""
    return pa.array([int.from_bytes(each[:8]) & _POSITIVE for each in digests], pa.int64())


def check_dates(field: pa.Field) -> None:
    kind = field.type
    if not pa.types.is_date32(kind) and not pa.types.is_timestamp(kind):
        raise UsageError(
            f"column {field.name} has the type {kind}, but only dates and timestamps can be "
            "shifted or truncated to their month or year",
            "cast it before, to date or timestamp[us]; or use another mask",
        )


def truncated_dates(step: Step, field: pa.Field) -> Values:

    def cut(array: pa.Array) -> pa.Array:
        civil = Civil.of(array)
        past = civil.yearday
        if step.to == "month":
            # Months of a year that begins in March are 153 days in five.
            day = civil.march_day
            month = pc.divide(pc.add(pc.multiply(day, 5), 2), 153)
            past = pc.subtract(day, pc.divide(pc.add(pc.multiply(month, 153), 2), 5))
        days = pc.subtract(civil.days, past)
        return _moved(pc.multiply_checked, days, _day_ticks(field.type), field)

    return lambda array: _finite_only(array, field, cut)


def shifted(
    step: Step, field: pa.Field, by: pa.Field, key: bytes
) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """Return the function that shifts dates by a number of days that follows from the subject."""
    hmac = Hmac(derived(key, "shift", step.domain))

    def shift_of(messages: list[bytes]) -> pa.Array:
        found = leading_integers(hmac.digests(messages))
        rest = pc.subtract(found, pc.multiply(pc.divide(found, 2 * step.days), 2 * step.days))
        # From -days to days, and never 0, which would leave a date as it is.
        below = pc.less(rest, step.days)
        return pc.if_else(below, pc.subtract(rest, step.days), pc.subtract(rest, step.days - 1))

    def shift(array: pa.Array, subjects: pa.Array) -> pa.Array:
        days = each_once(canonical(subjects, by), shift_of)
        ticks = pc.multiply(days, _day_ticks(field.type))
        moved = _finite_only(
            array, field, lambda finite: _moved(pc.add_checked, moment_ticks(finite), ticks, field)
        )
        return pc.if_else(pc.is_valid(days), moved, pa.scalar(None, array.type))

    return shift


def _finite_only(array: pa.Array, field: pa.Field, change: Values) -> pa.Array:
    if not has_infinities(field):
        return change(array)
    ticks = moment_ticks(array)
    greatest = 2 ** (array.type.bit_width - 1) - 1
    infinite = pc.or_(pc.equal(ticks, greatest), pc.equal(ticks, -greatest))
    finite = pc.if_else(infinite, pa.scalar(None, array.type), array)
    return pc.if_else(infinite, array, change(finite))


def _day_ticks(kind: pa.DataType) -> int:
    return 1 if pa.types.is_date32(kind) else DAY_SECONDS * 10 ** UNIT_DIGITS[kind.unit]


def _moved(
    function: Callable[[pa.Array, pa.Array | int], pa.Array],
    values: pa.Array,
    other: pa.Array | int,
    field: pa.Field,
) -> pa.Array:
    """Return dates by their ticks, computed from others; OutputFailed outside of their range."""
    try:
        ticks = function(values, other)
        wide = field.type.bit_width == 64
        return (ticks if wide else pc.cast(ticks, pa.int32())).view(field.type)
    except pa.ArrowInvalid:
        raise OutputFailed(
            f"a date of column {field.name} would be outside the range of {field.type}",
            f"redact the column: --mask '{field.name}=redact'",
        ) from None


def shortest(alphabet: str) -> int:
    length = 2
    while len(alphabet) ** length < SMALLEST_DOMAIN:
        length += 1
    return length


def is_whole_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal128(kind) and kind.scale == 0))


def check_encryption(step: Step, field: pa.Field) -> pa.Field:
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


def encrypted(step: Step, field: pa.Field, key: bytes) -> Values:
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

        def of_number(value: str) -> str:
            if value.startswith("-") or len(value) > step.digits:
                raise _refused(step.column, f"is negative, or has more than {step.digits} digits")
            return of_text(value.zfill(step.digits))

        whole = pa.decimal128(step.digits, 0)
        return lambda array: pc.cast(
            _texts_once(pc.cast(array, pa.string()), of_number), whole
        ).cast(kind)
    own, least = frozenset(alphabet), shortest(alphabet)

    def of_any(text: str) -> str:
        letters = [letter for letter in text if letter in own]
        if len(letters) < least:
            raise _refused(
                step.column,
                f"has fewer than {least} characters of its alphabet, but FF1 needs "
                f"{SMALLEST_DOMAIN:,} possible values",
            )
        if len(letters) == len(text):
            return of_text(text)
        if step.others == "refuse":
            why = f"has characters that are not in the alphabet {step.alphabet}"
            raise _refused(step.column, why)
        found = iter(of_text("".join(letters)))
        return "".join(next(found) if letter in own else letter for letter in text)

    return lambda array: _texts_once(array, of_any)


def cipher_class() -> Any:
    try:
        from ffx import FF1
    except ImportError as error:
        raise ConfigError(
            f"the module {error.name!r} is not installed", "pip install 'unloader[masking]'"
        ) from error
    return FF1


def _texts_once(array: pa.Array, one: Callable[[str], str]) -> pa.Array:
    encoded = array.dictionary_encode()
    values = [one(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(values, array.type).take(encoded.indices)


def _refused(column: str, why: str) -> OutputFailed:
    return OutputFailed(
        f"a value of column {column} {why}",
        "exclude such rows with --filter, or use another mask; the value is not shown",
    )
