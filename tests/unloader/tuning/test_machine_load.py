"""What two looks at the machine's counters say."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from unloader.tuning.machine_load import (
    CpuTimes,
    DiskCounters,
    Machine,
    Reading,
    Tree,
    load_between,
)

MACHINE = Machine(nodes=((0, (0, 1)), (1, (2, 3))), cpu_quota=None, output_disks=frozenset({"b"}))


def cpu(user: float, system: float, iowait: float, idle: float) -> CpuTimes:
    """Return times without any that were stolen."""
    return CpuTimes(user=user, system=system, iowait=iowait, idle=idle, stolen=0.0)


def tree(seconds: float) -> Tree:
    return Tree(seconds=seconds, memory_bytes=None)


BEFORE = Reading(
    at=100.0,
    cpu=cpu(1000, 100, 10, 5000),
    cpus=(cpu(0, 0, 0, 0),) * 4,
    disks={
        "a": DiskCounters(read_bytes=0, written_bytes=0, busy_seconds=1.0, queued_seconds=1.0),
        "b": DiskCounters(read_bytes=5, written_bytes=5, busy_seconds=None, queued_seconds=None),
        "idle": DiskCounters(read_bytes=9, written_bytes=9, busy_seconds=0, queued_seconds=0),
    },
    networks={"eth0": (100, 200), "lo": (7, 7)},
    parent_seconds=5.0,
    workers=tree(50.0),
    database=tree(20.0),
)
AFTER = Reading(
    at=110.0,
    cpu=cpu(1020, 108, 14, 5008),
    cpus=(cpu(10, 0, 0, 0), cpu(5, 0, 0, 5), cpu(0, 0, 5, 5), cpu(0, 1, 0, 9)),
    disks={
        "a": DiskCounters(
            read_bytes=1000, written_bytes=5000, busy_seconds=6.0, queued_seconds=31.0
        ),
        "b": DiskCounters(read_bytes=5, written_bytes=5, busy_seconds=None, queued_seconds=None),
        "idle": DiskCounters(read_bytes=9, written_bytes=9, busy_seconds=0, queued_seconds=0),
    },
    networks={"eth0": (1100, 200), "lo": (7, 7)},
    parent_seconds=6.0,
    workers=tree(66.0),
    database=tree(28.0),
)


def test_shares_and_rates() -> None:
    """Each figure is the difference of its counters over the time of the CPUs or of the clock."""
    load = load_between(BEFORE, AFTER, MACHINE, clock_mhz=2400.0, peak=123)
    assert load.cpu is not None
    assert (load.cpu.user, load.cpu.system, load.cpu.iowait, load.cpu.idle) == (0.5, 0.2, 0.1, 0.2)
    assert load.used == pytest.approx(0.7)
    who = load.processes
    assert (who.workers, who.parent, who.database) == (0.4, 0.025, 0.2)
    assert who.rest == pytest.approx(0.7 - 0.625)
    disks = {disk.name: disk for disk in load.disks}
    assert disks.keys() == {"a", "b"}, "what did nothing and is not of the output is left out"
    assert (disks["a"].read_bytes_per_second, disks["a"].write_bytes_per_second) == (100, 500)
    assert (disks["a"].busy, disks["a"].queue, disks["a"].of_output) == (0.5, 3.0, False)
    assert disks["b"].of_output
    assert [each.name for each in load.networks] == ["eth0"]
    assert load.networks[0].received_bytes_per_second == 100
    assert [(node.node, node.busy) for node in load.nodes] == [(0, 0.75), (1, 0.05)]
    assert (load.clock_mhz, load.peak_memory_bytes) == (2400.0, 123)


def test_what_cannot_be_read_is_none() -> None:
    """A figure without a counter is missing, never zero; the others stay."""
    load = load_between(BEFORE, AFTER, MACHINE, clock_mhz=None, peak=None)
    assert (load.disks[1].busy, load.disks[1].queue) == (None, None)
    gone = replace(AFTER, cpu=None, cpus=(), database=None)
    load = load_between(BEFORE, gone, MACHINE, clock_mhz=None, peak=None)
    assert (load.cpu, load.used, load.nodes) == (None, None, ())
    assert load.processes.workers is None
    load = load_between(BEFORE, replace(AFTER, database=None), MACHINE, clock_mhz=None, peak=None)
    assert load.processes.database is None
    assert load.processes.rest == pytest.approx(0.7 - 0.425)


def test_a_quota_is_a_limit_of_its_own() -> None:
    """Workers that use all that their control group grants are at the limit on an idle machine."""
    quota = replace(MACHINE, cpu_quota=1.7)
    load = load_between(BEFORE, AFTER, quota, clock_mhz=None, peak=None)
    # 17 CPU seconds in 10 seconds.
    assert load.used == pytest.approx(1.0)
    half = replace(MACHINE, cpu_quota=2.0)
    load = load_between(BEFORE, AFTER, half, clock_mhz=None, peak=None)
    assert load.used == pytest.approx(0.85)
    assert load.throttled is None
