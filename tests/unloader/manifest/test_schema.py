"""The manifest's JSON Schema: it equals the one in the docs, and refuses other documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from schemas.json_schema import problems
from schemas.manifest_pages import page_text, schema_text

PAGE = Path(__file__).parents[3] / "docs" / "manifest.schema.json"


@pytest.mark.parametrize("name", ["manifest", "run-manifest"])
def test_the_schema_in_the_docs_is_the_one_of_the_types(name: str) -> None:
    """After a change, run: python tests/support/schemas/manifest_pages.py NAME > docs/NAME.schema.json."""
    assert PAGE.with_name(f"{name}.schema.json").read_text("utf-8") == schema_text(name)


def test_the_page_has_the_fields_of_the_types() -> None:
    """After a change, run the command in `schemas/manifest_pages.py`, and write the meanings."""
    page = PAGE.with_name("manifest.md").read_text("utf-8")
    assert page_text(page) == page
    assert "TODO" not in page
    shorter = page.replace("| `run_id` |", "| `id_of_the_run` |", 1)
    assert "| `run_id` | string | TODO |" in page_text(shorter)
    assert "id_of_the_run" not in page_text(shorter)


@pytest.mark.parametrize(
    ("value", "kind", "wrong"),
    [
        (1, {"type": "integer"}, False),
        (True, {"type": "integer"}, True),
        (1, {"type": "number"}, False),
        ("1", {"type": "number"}, True),
        (None, {"anyOf": [{"type": "null"}, {"type": "string"}]}, False),
        (1, {"anyOf": [{"type": "null"}, {"type": "string"}]}, True),
        (["a", 1], {"type": "array", "items": {"type": "string"}}, True),
        ([1, 2], {"type": "array", "prefixItems": [{"type": "integer"}] * 2}, False),
        ([1], {"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, False),
        ([1, 2], {"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, True),
        ({"a": 1}, {"type": "object", "additionalProperties": {"type": "string"}}, True),
        ({}, {"type": "object", "properties": {}, "required": ["a"]}, True),
        ({"b": 1}, {"type": "object", "properties": {}, "additionalProperties": False}, True),
        ("x", {"enum": ["y"]}, True),
    ],
)
def test_what_the_manifests_are_held_against_finds_what_is_wrong(
    value: Any, kind: dict[str, Any], wrong: bool
) -> None:
    """The small validator of the suite knows every word that the schema uses."""
    assert bool(problems(value, kind, {})) == wrong


def test_the_validator_knows_every_word_of_the_schema() -> None:
    """A word that it passed over in silence would check nothing."""
    whole = json.loads(PAGE.read_text("utf-8"))
    with pytest.raises(KeyError, match="multipleOf"):
        problems(1, {"multipleOf": 3}, {})
    assert problems({"format_version": 1}, whole, whole["$defs"])
