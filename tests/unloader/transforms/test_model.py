"""Transforms as data, for workers and in records of runs."""

from __future__ import annotations

import re

import pytest
from msgspec import ValidationError, convert
from msgspec.json import encode

from unloader.redaction import redact_forms
from unloader.transforms.model import (
    CastColumn,
    ComputeColumn,
    ConstantColumn,
    DropColumns,
    EncryptColumn,
    FilterRows,
    HashColumn,
    KeepColumns,
    RedactColumn,
    RenameColumns,
    ShiftDates,
    TokenizeColumn,
    Transform,
    TruncateColumn,
    TruncateDates,
)

EVERY_STEP = Transform(
    steps=(
        KeepColumns(keep=("a", 'b"')),
        DropColumns(drop=("c",)),
        RenameColumns(rename=(("a", "b"),)),
        CastColumn(cast="a", to="int64"),
        ConstantColumn(constant="a", value=None, type="date"),
        ComputeColumn(compute="a", sql="b + 1"),
        FilterRows(filter="a > 0"),
        HashColumn(hmac="a", key="k", encoding="base64", length=20),
        TokenizeColumn(tokenize="a", key="other", form="uuid", domain="customer"),
        RedactColumn(redact="a", value="x"),
        TruncateColumn(truncate="a", characters=3),
        TruncateDates(truncate_date="a", to="year"),
        ShiftDates(shift_date="a", by="b", key="k", days=30),
        EncryptColumn(ff1="a", key="k", alphabet="digits-lower", tweak="t"),
    )
)


def test_a_transform_passes_the_filter_for_secrets_unchanged() -> None:
    """No field has a name after which a password would be looked for."""
    text = encode(EVERY_STEP).decode()
    assert redact_forms(text) == text


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"step": "hsah", "hmac": "A"}, "'hsah' - at `$.steps[0].step`"),
        ({"step": "hmac", "hmac": "A", "length": 8, "size": 9}, "unknown field `size`"),
        ({"hmac": "A"}, "missing required field `step`"),
        ({"step": "hmac"}, "missing required field `hmac`"),
    ],
)
def test_an_unknown_field_is_an_error(step: dict[str, object], words: str) -> None:
    """A mask that is misspelt is never skipped."""
    with pytest.raises(ValidationError, match=re.escape(words)):
        convert({"steps": [step]}, Transform)
