"""From a mask and the columns that it finds to the columns that it leaves, and how rows follow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

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
from unloader.transforms.mask_values import (
    check_canonical,
    check_dates,
    check_encryption,
    check_text,
    encrypted,
    hashed,
    shifted,
    tokenized,
    truncated_dates,
)
from unloader.transforms.model import Masked, Step
from writers.schema import pc

Keys = Mapping[str, bytes]

_CHARACTERS = {"hex": 64, "base64": 44}
_LEAST_CHARACTERS = 8
_MOST_DAYS = 36_525

STAND_IN = bytes(32)
"""In the place of a key where a step is only checked, and no row will come."""


def masked(step: Step, columns: Columns, keys: Keys | None) -> tuple[Columns, Work]:
    """Mask one column; without `keys` the step is only checked.

    Raises:
        UsageError: The column or an option is wrong.
        ConfigError: A key is missing or invalid.
    """
    index = found(names_of(columns), step.column, f"--mask {step.column}={step.step}")
    column = columns[index]
    field = plain_field(column.field)
    key = _key(step.key_name, keys) if step.key_name else b""
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


def _key(name: str, keys: Keys | None) -> bytes:
    if keys is None:
        return STAND_IN
    if name not in keys:
        raise ConfigError(f"the masking key {name} is missing", "give its place with --mask-key")
    return keys[name]
