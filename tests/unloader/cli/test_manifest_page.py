"""docs/manifest.md and the real output of the commands: the same fields, of the same types.

A new field goes into the table of its section on the page. A field that the calls below do not bring
about is marked `optional` there. A new document gets a section and a line in `documents`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Fields = dict[str, str]
"""Path of a field to its type, as the page has it."""

PAGE = Path(__file__).parents[3] / "docs" / "manifest.md"
PLAIN: dict[str, Callable[[Any], bool]] = {
    "anything": lambda value: True,
    "null": lambda value: value is None,
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
}


def sections() -> dict[str, Fields]:
    """Return the fields of each section of the page by its heading."""
    found: dict[str, Fields] = {}
    fields: Fields = {}
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("#"):
            fields = found[line.lstrip("# ")] = {}
        elif match := re.fullmatch(r"\| `([^`]+)` \| ([^|]+) \| .+\. \|", line):
            assert match[1] not in fields, line
            fields[match[1]] = match[2]
        else:
            assert not line.startswith("| `"), f"not a line of a field: {line}"
    return found


class Comparison:
    """Holds documents against the page and remembers which fields occurred."""

    def __init__(self) -> None:
        """Read the page."""
        self.sections = sections()
        self.seen: set[tuple[str, str]] = set()

    def problems(self, document: dict[str, Any], section: str, prefix: str = "") -> list[str]:
        """Return the problems of an object, in words; without problems its fields have occurred."""
        fields, found, seen = self.sections[section], list[str](), set[tuple[str, str]]()
        for key, value in document.items():
            path = prefix + key
            below = [each for each in fields if each.startswith((f"{path}.", f"{path}[]."))]
            if path not in fields and not below:
                found.append(f"{section}: {path} is not on the page")
            if path in fields:
                seen.add((section, path))
                if not self._fits(value, fields[path].removesuffix(", optional")):
                    found.append(f"{section}: {path} is {value!r:.60}, not {fields[path]}")
            if below:
                items = value if isinstance(value, list) else [value]
                mark = "[]." if isinstance(value, list) else "."
                for item in filter(None, items):
                    found += self.problems(item, section, path + mark)
        if not found:
            self.seen |= seen
        return found

    def _fits(self, value: Any, told: str) -> bool:
        return any(self._is(value, each) for each in told.split(" or "))

    def _is(self, value: Any, told: str) -> bool:
        if told.startswith("list of "):
            told = told.removeprefix("list of ")
            return isinstance(value, list) and all(self._is(each, told) for each in value)
        if told.startswith("map to "):
            told = told.removeprefix("map to ")
            return isinstance(value, dict) and all(self._is(each, told) for each in value.values())
        if match := re.fullmatch(r"\[(.+)\]\(#\1\)", told):
            return isinstance(value, dict) and not self.problems(value, match[1])
        return PLAIN[told](value)

    def missing(self) -> list[str]:
        """Return the fields of the page that should have occurred and did not."""
        return [
            f"{section}: {path}"
            for section, fields in self.sections.items()
            for path, told in fields.items()
            if not told.endswith(", optional") and (section, path) not in self.seen
        ]


@pytest.fixture
def documents(unloader: Run, database: str) -> list[tuple[str, dict[str, Any]]]:
    """Return what every command answers, with the section of the page that is about it."""
    table = (database, "--table", "orders")
    calls = [
        ("The manifest", "run", *table, "--to", "a,b", "--file-per", "unit"),
        ("The manifest", "run", *table, "--to", "f", "--fixed", "--width", "name=20"),
        (
            *("The manifest", "run", *table, "--to", "p", "--format", "parquet"),
            *("--compression", "balanced", "--sorted-by", "id", "--split", "range"),
        ),
        ("The manifest", "run", database, "--query", "SELECT 1 AS i", "--to", "q"),
        (
            *("The manifest of several tables", "run", database, "--table", "*"),
            *("--to", "many/{schema}.{table}"),
        ),
        ("unloader describe", "describe", database),
        ("unloader describe --table", "describe", *table),
        (
            *("unloader plan", "plan", *table, "--to", "x", "--compression", "smallest"),
            *("--split", "range", "--unit-bytes", "20kB", "--columns", "id"),
        ),
        ("unloader codecs", "codecs", *table),
        (
            *("unloader preflight", "preflight", *table, "--to", "x", "--disk-bytes", "64kB"),
            *("--overlap-buffer", "4KiB"),
            *("--levels", "1", "--source-seconds", "10", "--sample", "64kB", "--save", "c.json"),
        ),
        ("The manifest", "run", *table, "--to", "c", "--ceilings", "c.json"),
        (
            *("unloader size", "size", "--rows", "1M", "--window", "1h", "--cores", "2"),
            *("--from", "c.json"),
        ),
        ("unloader size", "size", "--cores", "2", "--from", "f"),
        ("unloader verify", "verify", "f", database),
        ("unloader clean", "clean", "f"),
        ("unloader keepers", "keepers"),
        ("unloader topology", "topology"),
        ("unloader formats", "formats"),
        ("unloader sources", "sources"),
        ("unloader demo", "demo", "--rows", "1k"),
        ("An error", "run", *table, "--to", "f"),
    ]
    return [
        *(
            (section, json.loads(unloader(*arguments, "--json").stdout))
            for section, *arguments in calls
        )
    ]


@pytest.mark.long(OTHER_ROUTES)
def test_the_page_is_what_the_commands_write(documents: list[tuple[str, dict[str, Any]]]) -> None:
    """Every key that occurs is on the page with its type; every key on the page occurs or may not."""
    page = Comparison()
    problems = [each for section, found in documents for each in page.problems(found, section)]
    assert not problems
    assert not page.missing()
