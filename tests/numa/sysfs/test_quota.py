"""The CPU quota of control groups, and what it does to the number of usable CPUs."""

import pytest
from sysfs_tree import Machine

from numa.errors import TopologyError


@pytest.mark.parametrize(
    ("text", "quota", "usable"),
    [
        ("max 100000", None, 8),
        ("200000 100000", 2.0, 2),
        ("250000 100000", 2.5, 2),
        ("50000 100000", 0.5, 1),
        ("6400000 100000", 64.0, 8),
    ],
)
def test_v2_quota(machine: Machine, text: str, quota: float | None, usable: int) -> None:
    """A quota lowers the usable CPUs, rounded down, to no less than one."""
    machine.node(0, "0-7")
    machine.write(machine.cgroup / "cpu.max", text + "\n")
    topology = machine.detect(8)
    assert (topology.cpu_quota, topology.usable_cpus) == (quota, usable)


def test_tightest_ancestor_counts(machine: Machine) -> None:
    """Of our group and those above it the smallest quota binds; other groups do not matter."""
    machine.group("0::/user.slice/job.scope\n")
    machine.write(machine.cgroup / "user.slice" / "cpu.max", "300000 100000\n")
    machine.write(machine.cgroup / "user.slice" / "job.scope" / "cpu.max", "max 100000\n")
    machine.write(machine.cgroup / "other.slice" / "cpu.max", "100000 100000\n")
    assert machine.detect(8).cpu_quota == 3.0


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
def test_v1_quota(machine: Machine, folder: str) -> None:
    """The older hierarchy is read under both names of its mount, -1 meaning no limit."""
    machine.group("4:memory:/x\n3:cpu,cpuacct:/docker/abc\n0::/\n")
    group = machine.cgroup / folder / "docker" / "abc"
    machine.write(machine.cgroup / folder / "cpu.cfs_quota_us", "-1\n")
    machine.write(machine.cgroup / folder / "cpu.cfs_period_us", "100000\n")
    assert machine.detect(8).cpu_quota is None
    machine.write(group / "cpu.cfs_quota_us", "150000\n")
    machine.write(group / "cpu.cfs_period_us", "50000\n")
    assert machine.detect(8).cpu_quota == 3.0


def test_group_path_of_the_host(machine: Machine) -> None:
    """In a container whose group path is the host's, the quota at the mount's root is ours."""
    machine.group("0::/../../system.slice/docker-abc.scope\n")
    machine.write(machine.cgroup / "cpu.max", "100000 100000\n")
    assert machine.detect(8).cpu_quota == 1.0


@pytest.mark.parametrize("text", ["", "lots", "x 100000", "100000 0", "-5 100000"])
def test_garbage_quota_names_its_file(machine: Machine, text: str) -> None:
    """A quota that cannot be parsed is named with file and text."""
    machine.write(machine.cgroup / "cpu.max", text + "\n")
    with pytest.raises(TopologyError) as caught:
        machine.detect(8)
    assert str(machine.cgroup / "cpu.max") in str(caught.value)
    assert repr(text) in str(caught.value)
