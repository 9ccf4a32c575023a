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
from unloader.tuning.live_sweep import places, rounds, waits_of
from unloader.tuning.machine_load import (
    Counts,
    MeasuredLoad,
    Sampler,
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


def test_without_psutil_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure is blank, and none is zero."""
    monkeypatch.setattr(machine_load, "psutil", None)
    assert read_machine(machine_of(["/"]), "postgresql") == ({}, None)


def test_a_disk_is_found_for_a_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    """It is the disk of the parent directory; a file system in memory is without a disk."""
    assert disk_of(str(tmp_path / "a" / "b")) == disk_of(str(tmp_path))
    assert disk_of("/proc") is None


BEFORE: Counts = {
    ("cpu", ""): (1100, 6110),
    ("node", "0"): (0, 0),
    ("node", "1"): (0, 0),
    ("disk", "a"): (1.0, 100.0),
    ("disk", "b"): (3.0, 100.0),
    ("network", "to eth0"): (100, 20_000.0),
    ("network", "from eth0"): (200, 20_000.0),
    ("throttled", "group"): (10, 100),
    ("parent", ""): (5.0, 6110),
    ("workers", ""): (50.0, 6110),
    ("database", ""): (20.0, 6110),
}
AFTER: Counts = {
    ("cpu", ""): (1128, 6150),
    ("node", "0"): (15, 20),
    ("node", "1"): (1, 20),
    ("disk", "a"): (6.0, 110.0),
    ("disk", "b"): (3.0, 110.0),
    ("network", "to eth0"): (1100, 22_000.0),
    ("network", "from eth0"): (200, 22_000.0),
    ("throttled", "group"): (15, 120),
    ("parent", ""): (6.0, 6150),
    ("workers", ""): (66.0, 6150),
    ("database", ""): (28.0, 6150),
}


def test_shares() -> None:
    """Each figure is the difference of its counters over the time of the CPUs or of the clock.

    Of several disks, links and nodes the busiest one counts.
    """
    load = load_between(BEFORE, AFTER)
    assert load.cpu == pytest.approx(0.7)
    assert (load.workers, load.parent, load.database) == (0.4, 0.025, 0.2)
    assert load.others == pytest.approx(0.7 - 0.625)
    assert (load.disk, load.network, load.node, load.throttled) == (0.5, 0.5, 0.75, 0.25)


def test_what_cannot_be_read_is_none() -> None:
    """A figure without a counter is missing, never zero; the others stay."""

    def without(*kinds: str) -> MeasuredLoad:
        return load_between(BEFORE, {k: each for k, each in AFTER.items() if k[0] not in kinds})

    load = without("disk", "network", "throttled")
    assert (load.disk, load.network, load.throttled) == (None, None, None)
    load = without("cpu", "node", "database", "workers")
    assert (load.cpu, load.node, load.workers, load.others, load.disk) == (*[None] * 4, 0.5)
    load = without("database")
    assert load.database is None
    assert load.others == pytest.approx(0.7 - 0.425)
    assert load_between({}, AFTER) == MeasuredLoad()


def test_a_quota_is_a_limit_of_its_own() -> None:
    """Workers that use all that their control group grants are at the limit on an idle machine."""
    # 17 CPU seconds in 10 seconds.
    for quota, share in ((1.7, 1.0), (2.0, 0.85)):
        before = {**BEFORE, ("quota", ""): (55.0, 100 * quota)}
        load = load_between(before, {**AFTER, ("quota", ""): (72.0, 110 * quota)})
        assert load.cpu == pytest.approx(share)
