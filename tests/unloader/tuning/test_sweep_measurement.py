"""The measurements of a sweep: points in order, load of the machine, and waits."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace
from stages import stages as no_time

from unloader.model import StageLoad, UnitResult
from unloader.tuning import machine_load
from unloader.tuning.live_sweep import evenly, places, rounds, waits_of
from unloader.tuning.machine_load import (
    Machine,
    Reading,
    Sampler,
    cpu_by_node,
    database_roots,
    disk_of,
    load_between,
    machine_of,
    read_machine,
)
from writers import cpu_delay


def test_what_a_sweep_has_made_is_removed(tmp_path: Path) -> None:
    """Its directories are removed, the ones that were there stay."""
    (tmp_path / "there").mkdir()
    with places((str(tmp_path / "there"), str(tmp_path / "new" / "one")), "id"):
        assert (tmp_path / "new" / "one" / "_sweep-id").is_dir()
    assert [each.name for each in tmp_path.rglob("*")] == ["there"]


@pytest.mark.parametrize("points", [1, 2, 3, 10])
def test_each_round_has_every_point_once(points: int) -> None:
    """No point comes again before all others, and none twice in a row if there are others."""
    found = list(rounds(points, 20, seed=7))
    assert all(sorted(order) == list(range(points)) for order in found)
    flat = [at for order in found for at in order]
    assert Counter(flat) == dict.fromkeys(range(points), 20)
    if points > 1:
        assert all(one != other for one, other in itertools.pairwise(flat))


@pytest.mark.parametrize(("count", "number"), [(100, 5), (7, 7), (10, 3), (1, 1)])
def test_units_are_at_equal_distances(count: int, number: int) -> None:
    """Each comes once, and no part of the table is left out."""
    chosen = evenly(range(count), number)
    assert len(set(chosen)) == number
    gaps = [later - earlier for earlier, later in itertools.pairwise(chosen)]
    assert all(abs(gap - count / number) <= 1 for gap in gaps)
    assert chosen[0] <= count / number
    assert chosen[-1] >= count - count / number - 1


IDLE = StageLoad(**dict.fromkeys(StageLoad.__struct_fields__, 0.0))


def unit(load: StageLoad | None, **seconds: float) -> UnitResult:
    """Return a unit of ten seconds."""
    stages = no_time(load=load, **seconds)
    return UnitResult(
        unit="0",
        attempt=1,
        rows=1,
        files=(),
        stages=stages,
        seconds=10.0,
        cpu_seconds=0.0,
        peak_rss_bytes=0,
    )


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_delay, "is_known", lambda: True)


def waits(result: UnitResult) -> tuple[float, float, float]:
    """Return the shares for the source, the output and a CPU."""
    found = waits_of([result])
    return found["source"], found["output"], found["delay"]


def test_a_wait_for_rows_is_the_source_s_only_while_nothing_of_ours_runs() -> None:
    """Of eight seconds without rows, two were the fetch at work, and two its wait for a CPU.

    Threads of a driver work for the fetch.
    """
    load = replace(IDLE, starved_s=8.0, fetch_cpu_s=1.5, process_cpu_s=2.0, fetch_delay_s=2.0)
    assert waits(unit(load, fetch_s=8.0)) == pytest.approx((0.4, 0.0, 0.2))


def test_a_wait_for_writing_is_the_disk_s_only_while_nothing_of_ours_runs() -> None:
    """The time until files are synced counts; checksums and a delay of the thread do not."""
    load = replace(
        IDLE,
        encode_blocked_s=3.0,
        closing_s=5.0,
        write_cpu_s=1.0,
        write_delay_s=1.0,
        process_cpu_s=1.0,
    )
    assert waits(unit(load, write_s=8.0)) == pytest.approx((0.0, 0.6, 0.1))


def test_a_wait_for_a_codec_is_not_the_disk_s() -> None:
    """Encoding that waits for compressing waits for a CPU at most, else for the disk after it."""
    load = replace(IDLE, encode_blocked_s=8.0, compress_delay_s=2.0, process_cpu_s=6.0)
    seconds = {"compress_s": 8.0, "compress_cpu_s": 6.0, "write_s": 8.0}
    assert waits(unit(load, **seconds)) == pytest.approx((0.0, 0.0, 0.2))
    behind = replace(load, compress_blocked_s=8.0)
    assert waits(unit(behind, **seconds))[1] == pytest.approx(0.4)


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
    assert load.workers is not None
    # Of the time between the two looks, which lie somewhere in the calls.
    share = load.workers * (os.cpu_count() or 1)
    assert share * (after - before) > 0.3
    assert share * (ended - began) < 3
    assert load.database is None
    assert load.cpu is not None
    assert load.cpu >= load.workers
    assert sampler.moments()


def test_without_psutil_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure is blank, and none is zero."""
    monkeypatch.setattr(machine_load, "psutil", None)
    reading = read_machine(MACHINE, ())
    assert (reading.cpu, reading.cpus, reading.parent_seconds) == (None, (), None)
    assert (reading.worker_seconds, reading.database_seconds) == (None, None)
    assert (dict(reading.disks), dict(reading.networks)) == ({}, {})
    assert database_roots("postgresql") is None


def test_a_disk_is_found_for_a_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    """It is the disk of the parent directory; a file system in memory is without a disk."""
    assert disk_of(str(tmp_path / "a" / "b")) == disk_of(str(tmp_path))
    assert disk_of("/proc") is None


MACHINE = Machine(
    nodes=((0, (0, 1)), (1, (2, 3))),
    output_disks=frozenset({"a", "b"}),
    link_speeds={"eth0": 200.0, "gone": 1.0},
)
BEFORE = Reading(
    at=100.0,
    cpu=(1100, 6110),
    cpus=((0, 0),) * 4,
    disks={"a": 1.0, "b": 3.0},
    networks={"eth0": (100, 200), "lo": (7, 7)},
    throttled={"group": (100, 10)},
    parent_seconds=5.0,
    worker_seconds=50.0,
    database_seconds=20.0,
)
AFTER = Reading(
    at=110.0,
    cpu=(1128, 6150),
    cpus=((10, 10), (5, 10), (0, 10), (1, 10)),
    disks={"a": 6.0, "b": 3.0},
    networks={"eth0": (1100, 200), "lo": (9, 9)},
    throttled={"group": (120, 15)},
    parent_seconds=6.0,
    worker_seconds=66.0,
    database_seconds=28.0,
)


def test_shares() -> None:
    """Each figure is the difference of its counters over the time of the CPUs or of the clock.

    Of several disks, links and nodes the busiest one counts.
    """
    load = load_between(BEFORE, AFTER, MACHINE)
    assert load.cpu == pytest.approx(0.7)
    assert (load.workers, load.parent, load.database) == (0.4, 0.025, 0.2)
    assert load.others == pytest.approx(0.7 - 0.625)
    assert (load.disk, load.network, load.node, load.throttled) == (0.5, 0.5, 0.75, 0.25)
    assert cpu_by_node(BEFORE, AFTER, MACHINE) == {"0": 0.75, "1": 0.05}


def test_what_cannot_be_read_is_none() -> None:
    """A figure without a counter is missing, never zero; the others stay."""
    nothing = replace(AFTER, disks={}, networks={}, throttled={})
    load = load_between(BEFORE, nothing, MACHINE)
    assert (load.disk, load.network, load.throttled) == (None, None, None)
    gone = replace(AFTER, cpu=None, cpus=(), database_seconds=None)
    load = load_between(BEFORE, gone, MACHINE)
    assert (load.cpu, load.node, load.workers, load.disk) == (None, None, None, 0.5)
    load = load_between(BEFORE, replace(AFTER, database_seconds=None), MACHINE)
    assert load.database is None
    assert load.others == pytest.approx(0.7 - 0.425)


def test_a_quota_is_a_limit_of_its_own() -> None:
    """Workers that use all that their control group grants are at the limit on an idle machine."""
    # 17 CPU seconds in 10 seconds.
    for quota, share in ((1.7, 1.0), (2.0, 0.85)):
        load = load_between(BEFORE, AFTER, replace(MACHINE, cpu_quota=quota))
        assert load.cpu == pytest.approx(share)
