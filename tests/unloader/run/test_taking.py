"""Directories of tables are taken while others are read; obstacles are reported before."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from several_tables import made, requests_of, unload

from unloader.errors import OutputFailed, PartialUnload
from unloader.events import Event, PhaseStarted, TableFinished, UnitFinished
from unloader.model import SourceSpec, TablesOptions
from unloader.run import places as taking

SIZES = {"large": 5000, "middle": 100, "small": 10}
_SECONDS = 30.0
"""A wait reaches this limit only in a deadlock."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceSpec:
    """A DuckDB file of three tables."""
    return made(tmp_path_factory.mktemp("source") / "s.db", SIZES)


class HeldUp:
    """Blocks the making of directories until a work unit is done."""

    def __init__(self, directory: Path) -> None:
        """Begin with the next call; an audit hook stays for good, and does nothing after that."""
        self._directory, self._done = str(directory), threading.Event()
        sys.addaudithook(self._audit)

    def _audit(self, name: str, arguments: tuple[object, ...]) -> None:
        if name == "os.mkdir" and str(arguments[0]) == self._directory:
            assert self._done.wait(_SECONDS), "no unit was done before all directories were made"

    def observe(self, event: Event) -> None:
        """Unblock them once a unit is done."""
        if isinstance(event, UnitFinished):
            self._done.set()


def test_tables_are_read_before_all_directories_are_taken(
    source: SourceSpec, tmp_path: Path
) -> None:
    """The directory of the last table is made when a unit of another one is done."""
    held_up = HeldUp(tmp_path / "main.small")
    manifest = unload(
        requests_of(source, f"{tmp_path}/{{schema}}.{{table}}", list(SIZES)),
        observe=held_up.observe,
    )
    assert [each.rows for each in manifest.tables] == list(SIZES.values())


def test_a_directory_that_takes_for_ever_does_not_keep_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wait for its end is bounded; a later result is there for the next wait."""
    goes_on = threading.Event()

    class Hanging:
        def take(self) -> None:
            assert goes_on.wait(_SECONDS)

    monkeypatch.setattr(taking, "END_SECONDS", 0.1)
    table: Any = object()
    held = taking.Taking([(table, Hanging())], record=lambda: None)
    assert held.collect(0.1) == []
    held.close()
    goes_on.set()
    assert held.collect(_SECONDS) == [(table, None)]


@pytest.mark.parametrize("on_failure", ["continue", "stop"])
def test_a_table_whose_directory_cannot_be_taken_fails_alone(
    source: SourceSpec, tmp_path: Path, on_failure: str
) -> None:
    """An obstacle that appears after the last look fails that table, and stays unchanged."""
    in_the_way = tmp_path / "main.middle"
    ended = {}

    def observe(event: Event) -> None:
        if isinstance(event, PhaseStarted) and event.phase == "unloading":
            in_the_way.write_text("mine")
        if isinstance(event, TableFinished):
            ended[event.table] = event.error

    options = TablesOptions(destination="", on_failure=on_failure)  # type: ignore[arg-type]
    requests = requests_of(source, f"{tmp_path}/{{schema}}.{{table}}", list(SIZES))
    with pytest.raises(PartialUnload if on_failure == "continue" else OutputFailed) as caught:
        unload(requests, options, observe)
    assert f"main.middle: cannot create {in_the_way}" in str(caught.value)
    assert in_the_way.read_text() == "mine"
    assert ended["main.middle"]
    if on_failure == "continue":
        assert {table for table, error in ended.items() if not error} == {
            "main.large",
            "main.small",
        }


def test_what_lies_at_destinations_is_told_at_once(source: SourceSpec, tmp_path: Path) -> None:
    """Of all tables, before anything is read, and nothing is left behind."""
    (tmp_path / "main.large").write_text("a file")
    (tmp_path / "main.small").mkdir()
    (tmp_path / "main.small" / "foreign").touch()
    told: list[Event] = []
    requests = requests_of(source, f"{tmp_path}/{{schema}}.{{table}}", list(SIZES))
    with pytest.raises(OutputFailed) as caught:
        unload(requests, observe=told.append)
    assert "main.large" in str(caught.value)
    assert "main.small is not empty: it holds foreign" in str(caught.value)
    assert PhaseStarted(phase="unloading") not in told
    assert sorted(os.listdir(tmp_path)) == ["main.large", "main.small"]
