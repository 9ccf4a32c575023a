"""The machine as it is seen while something continues."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unloader.tuning.load_sampler import Sampler, database_roots
from unloader.tuning.machine_load import disk_of, machine_of, read_machine

BUSY = "import time\nwhile time.process_time() < 0.4: pass"


def test_cpu_of_children_that_have_ended_counts(tmp_path: Path) -> None:
    """What a worker has used is in its share, though no look was taken while it lived."""
    sampler = Sampler(machine_of([str(tmp_path)]), "duckdb", interval_seconds=600.0)
    before = time.monotonic()
    sampler.start()
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    ended = time.monotonic()
    sampler.stop()
    after = time.monotonic()
    load = sampler.load()
    assert load is not None
    assert load.processes.workers is not None
    # Of the time between the two looks, which lie somewhere in the calls.
    share = load.processes.workers * (os.cpu_count() or 1)
    assert share * (after - before) > 0.3
    assert share * (ended - began) < 3
    assert load.processes.database is None
    assert load.cpu is not None
    assert sum((load.cpu.user, load.cpu.system, load.cpu.iowait, load.cpu.idle)) <= 1.001
    assert sampler.moments()


def test_without_psutil_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure is blank, and none is zero."""
    monkeypatch.setitem(sys.modules, "psutil", None)
    reading = read_machine(())
    assert (reading.cpu, reading.cpus, reading.parent_seconds) == (None, (), None)
    assert (reading.workers, reading.database, reading.clock_mhz) == (None, None, None)
    assert (dict(reading.disks), dict(reading.networks)) == ({}, {})
    assert database_roots("postgresql") is None


def test_a_disk_is_found_for_a_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    """It is the disk of the parent directory; a file system in memory has none."""
    assert disk_of(str(tmp_path / "a" / "b")) == disk_of(str(tmp_path))
    assert disk_of("/proc") is None
