"""From a mask and the columns that it finds to the columns that it leaves, and how rows follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pyarrow as pa
from msgspec.structs import replace

from unloader.errors import ConfigError, UsageError
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
from unloader.transforms.format_preserving import check_encryption, encrypted
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
from writers.arrow_compute import pc

Keys = Mapping[str, bytes]
"""Keys by their names."""

_CHARACTERS = {"hex": 64, "base64": 44}
_LEAST_CHARACTERS = 8
_MOST_DAYS = 36_525

STAND_IN = bytes(32)
"""In the place of a key where a step is only checked, and no row will come."""


def column_of(step: Mask) -> str:
    """Return the name of the column that a mask is for, as it was typed."""
    return str(getattr(step, _field(step)))


def method_of(step: Mask) -> Method:
    """Return the word for a mask."""
    return cast(Method, _field(step).replace("_", "-"))


def masked(step: Mask, columns: Columns, keys: Keys | None) -> tuple[Columns, Work]:
    """Mask one column.

    Args:
        step: The mask.
        columns: Before the step.
        keys: None if the step is only checked.

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
        return after, setting(index, lambda arrays, _: function(arrays[index]))
    return after, on_one(index, function)


def _field(step: Mask) -> str:
    """Return the field that names the column, which is the first one."""
    return step.__struct_fields__[0]


def _one_column(step: Mask, field: pa.Field, keys: Keys | None) -> tuple[pa.Field, Values, str]:
    """Return the masked column's field, its function, and its description in a manifest."""
    if isinstance(step, HashColumn):
        return _hash(step, field, keys)
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
        return _new(field, field.type), _truncated(step), f"{step.characters} characters"
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


def _hash(step: HashColumn, field: pa.Field, keys: Keys | None) -> tuple[pa.Field, Values, str]:
    check_canonical(field, "make hashes")
    most = _CHARACTERS[step.encoding]
    if step.length and not _LEAST_CHARACTERS <= step.length <= most:
        raise UsageError(
            f"hmac keeps {step.length} characters of {field.name}",
            f"keep {_LEAST_CHARACTERS} to {most}; to keep all, leave length out",
        )
    detail = f"HMAC-SHA-256, {step.length or most} characters of {step.encoding}"
    return _new(field, pa.string()), hashed(step, field, _key(step.key, keys)), detail


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


def _truncated(step: TruncateColumn) -> Values:
    """Return the function that keeps the first characters of texts, which may be in pieces."""

    def cut(array: pa.Array | pa.ChunkedArray) -> pa.Array:
        kind = array.type
        large = pa.types.is_large_string(kind)
        data = array.cast(pa.large_binary() if large else pa.binary())
        # Only the kept bytes are put together, without the bytes that are cut off.
        head = plain_array(pc.binary_slice(data, 0, step.characters)).view(kind)
        # Where all these bytes are ASCII they are the characters, at a quarter of the cost.
        if pc.all(pc.string_is_ascii(head)).as_py() is not False:
            return head
        return plain_array(pc.utf8_slice_codeunits(array, 0, step.characters))

    return cut
