"""The record of how far a run is, as it is written and read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.json import encode

from unloader.status.model import (
    LiveStatus,
    ParallelismStatus,
    UnitCounts,
    WorkerStatus,
    parse_status,
)
from unloader.status.reading import FinishedRun, RunStatus, StoppedRun

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
    assert parse_status(encode(SHOWN)) == SHOWN


def test_a_key_of_a_later_version_is_passed_over() -> None:
    """Readers of this version show the keys that they know."""
    document = json.loads(encode(SHOWN))
    document["mood"], document["workers"][0]["mood"] = "good", "good"
    assert parse_status(json.dumps(document).encode()) == SHOWN


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format_version": 2}', "\x00", '"x"'])
def test_what_is_no_record_is_none(text: str) -> None:
    """A record that is damaged, or of another version, is as none at all."""
    assert parse_status(text.encode()) is None


def test_the_page_tells_of_each_key() -> None:
    """docs/watching.md has exactly the keys of the record."""
    told, section = rows_of("The record")
    assert told == {*LiveStatus.__struct_fields__} | {"format_version"}
    assert rows_of("The key `parallelism`")[0] == {*ParallelismStatus.__struct_fields__}
    for kind in (UnitCounts, WorkerStatus):
        for name in kind.__struct_fields__:
            assert f"`{name}`" in section


def test_the_page_tells_of_the_answers() -> None:
    """docs/watching.md has exactly the keys of the answers with --json."""
    told, section = rows_of("The answers in JSON")
    assert told == {*RunStatus.__struct_fields__}
    for kind in (FinishedRun, StoppedRun):
        for name in kind.__struct_fields__:
            assert f"`{name}`" in section


def rows_of(heading: str) -> tuple[set[str], str]:
    """Return the keys in the first column of a section's table, and the section."""
    section = PAGE.read_text("utf-8").split(f"## {heading}")[1]
    section = re.split(r"\n##+ ", section)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return set(re.findall(r"`(\w+)`", " ".join(rows))), section
