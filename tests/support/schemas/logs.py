"""Every log in JSON that a call of the suite writes, held line by line against the schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from schemas.json_schema import problems
from unloader.cli.display.json_lines import asked_for

PAGE = Path(__file__).parents[3] / "docs" / "log.schema.json"


@cache
def _schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PAGE.read_text("utf-8"))
    return found


def checked(text: str) -> list[dict[str, Any]]:
    """Return the lines of a log; fail if one is not as the schema says."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        # Told by the schema of its event alone: "none of several" would explain nothing.
        kind = next(each for each in _schema()["anyOf"] if each["title"] == line["event"])
        found = problems(line, kind, _schema()["$defs"])
        assert not found, (found[:5], line)
    return lines


def check_call(arguments: tuple[str, ...], env: Mapping[str, str], text: str) -> None:
    """Check what a call has written to standard error, if it was asked for JSON."""
    if asked_for(arguments) or env.get("UNLOADER_LOG_FORMAT") == "json":
        checked(text)
