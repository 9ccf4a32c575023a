"""Transforms as data: what travels to workers and lies in records of runs."""

from __future__ import annotations

import json
import pickle

import pytest

from unloader import json_fields
from unloader.json_fields import NotAsExpected
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
    MaskingKey,
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


def test_every_step_comes_back_from_json_and_pickle() -> None:
    """What was written is read as the same steps, each of its own class."""
    text = json.dumps(json_fields.to_json(EVERY_STEP))
    assert json_fields.from_json(Transform, json.loads(text), "the transform") == EVERY_STEP
    assert pickle.loads(pickle.dumps(EVERY_STEP)) == EVERY_STEP
    key = MaskingKey(name="k", kind="file", place="/a", proof="00:11")
    assert json_fields.from_json(MaskingKey, json_fields.to_json(key), "the key") == key


def test_a_transform_passes_the_filter_for_secrets_unchanged() -> None:
    """No field has a name after which a password would be looked for."""
    text = json.dumps(json_fields.to_json(EVERY_STEP))
    assert redact_forms(text) == text


def test_a_step_may_be_written_without_its_defaults() -> None:
    """As a job file has it: the first field says which step it is."""
    asked = {"steps": [{"hmac": "A", "key": "k"}, {"cast": "A", "to": "date"}]}
    found = json_fields.from_json(Transform, asked, "the transform", newer=True)
    assert found.steps == (HashColumn(hmac="A", key="k"), CastColumn(cast="A", to="date"))


@pytest.mark.parametrize("step", [{"hsah": "A"}, {"hmac": "A", "length": 8, "size": 9}, {}])
def test_an_unknown_field_is_an_error(step: dict[str, object]) -> None:
    """A mask that is misspelt is never skipped."""
    with pytest.raises((NotAsExpected, TypeError)):
        json_fields.from_json(Transform, {"steps": [step]}, "the transform")


def test_keys_are_named_once() -> None:
    """In the order of the steps."""
    assert EVERY_STEP.key_names == ("k", "other")
