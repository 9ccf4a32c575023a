"""Virtual machines with nodes that the host has not; each boots once and runs all its scenarios."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from processes import command

# Last, so that nothing here can hide a real package.
sys.path.append(str(Path(__file__).parent))

from vm_checks import UNITS, files_of
from vm_machine import BOOT_SECONDS, Boot, Ended, Machine, Scenario, boot
from vm_rig import Missing, Rig, prepared

ROWS = 1_500_000
"""Enough that each worker is at work for several seconds, on emulated CPUs, too."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let a test outlast the machine that it boots."""
    item.add_marker(pytest.mark.timeout(BOOT_SECONDS + 60))


@pytest.fixture(scope="session")
def rig() -> Rig:
    """QEMU and a kernel, or a skip that says why they cannot be had."""
    try:
        return prepared()
    except Missing as missing:
        pytest.skip(f"no virtual machines: {missing}")


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the table that every run reads."""
    path = tmp_path_factory.mktemp("vm-database") / "events.db"
    rows = ((i, f"event {i * 7919 % 10007}", i / 8, None if i % 5 else "é, ü") for i in range(ROWS))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE events (id INTEGER PRIMARY KEY, name TEXT, x REAL, y TEXT)"
        )
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
    return path


@pytest.fixture(scope="session")
def expected(database: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Name and content of the files that a run on the host writes."""
    folder = tmp_path_factory.mktemp("vm-expected") / "out"
    source = ("run", f"sqlite://{database}", "--table", "events", "--to", str(folder))
    command.run(*source, "--parallelism", "2", *UNITS, "--quiet")
    files = files_of(folder)
    assert len(files) > 4, "fewer units than workers"
    return files


@pytest.fixture(scope="session")
def boot_guest(
    rig: Rig, database: Path, expected: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> Boot:
    """Boot a machine, run its scenarios, return them by name.

    The run on the host comes first, as it compiles the modules that all of them import.
    """

    def run(machine: Machine, scenarios: Sequence[Scenario]) -> dict[str, Ended]:
        return boot(rig, machine, scenarios, database, tmp_path_factory.mktemp("vm-share"))

    return run


@pytest.fixture(scope="module")
def runs(boot_guest: Boot, request: pytest.FixtureRequest) -> dict[str, Ended]:
    """Every one of the module's SCENARIOS, run in one boot of its MACHINE."""
    return boot_guest(request.module.MACHINE, request.module.SCENARIOS)


@pytest.fixture(autouse=True, scope="module")
def _nothing_left_behind() -> Iterator[None]:
    """Fail a module that leaves a virtual machine running."""
    yield
    left = [
        child.pid
        for child in psutil.Process().children(recursive=True)
        if child.name().startswith("qemu-system")
    ]
    assert not left, f"virtual machines left behind: {left}"
