"""The record of how far a run is, as it is written and read."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from unloader.status.model import LiveStatus, UnitCounts, WorkerStatus, parse_status, status_bytes

PAGE = Path(__file__).parents[3] / "docs" / "watching.md"
SHOWN = LiveStatus(
    run_id="r",
    sequence=7,
    updated="2026-01-01T00:00:00+00:00",
    units=UnitCounts(total=2, done=1, running=1),
    workers=(WorkerStatus(worker=0, node=1, cpus=(2, 3), unit="2", waits_for="source"),),
)


def test_what_is_written_comes_back() -> None:
    """Workers and counts included."""
    assert parse_status(status_bytes(SHOWN)) == SHOWN


def test_a_key_of_a_later_version_is_passed_over() -> None:
    """Readers of this version show what they know."""
    document = json.loads(status_bytes(SHOWN))
    document["mood"], document["workers"][0]["mood"] = "good", "good"
    assert parse_status(json.dumps(document).encode()) == SHOWN


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format_version": 2}', "\x00", '"x"'])
def test_what_is_no_record_is_none(text: str) -> None:
    """A record that is damaged, or of another version, is as none at all."""
    assert parse_status(text.encode()) is None


def test_the_page_tells_of_each_key() -> None:
    """docs/watching.md has all keys of the record, and no other one."""
    section = PAGE.read_text("utf-8").split("## The record")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    told = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert told == {field.name for field in dataclasses.fields(LiveStatus)} | {"format_version"}
    for kind in (UnitCounts, WorkerStatus):
        for field in dataclasses.fields(kind):
            assert f"`{field.name}`" in section
