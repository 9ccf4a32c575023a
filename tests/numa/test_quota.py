"""The CPU quota of control groups, and its effect on the number of usable CPUs."""

import pytest
from sysfs_tree import Machine

from numa.model import TopologyError
from numa.topology import throttling


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


def test_throttling(machine: Machine) -> None:
    """Of our group and its parents, the groups whose quota has had a period are reported."""
    machine.group("0::/user.slice/job.scope\n")
    above, own = machine.cgroup / "user.slice", machine.cgroup / "user.slice" / "job.scope"
    machine.write(above / "cpu.stat", "usage_usec 7\nnr_periods 40\nnr_throttled 30\n")
    machine.write(own / "cpu.stat", "usage_usec 7\nnr_periods 0\nnr_throttled 0\n")
    machine.write(machine.cgroup / "cpu.stat", "usage_usec 9\n")
    machine.write(machine.cgroup / "other" / "cpu.stat", "nr_periods 1\nnr_throttled 1\n")
    found = throttling(machine.cgroup, machine.proc)
    assert found == {str(above): (40, 30)}


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


def mounted(machine: Machine, *mounts: tuple[str, str, str, str]) -> None:
    """Write a mount table of (group, place, type, options), as the kernel prints it."""
    lines = ["22 27 0:21 / /proc rw,nosuid - proc proc rw", "short line"]
    lines += [
        f"3{number} 31 0:29 {group} {machine.cgroup}{place} rw,relatime shared:4 - {kind} {kind} {options}"
        for number, (group, place, kind, options) in enumerate(mounts)
    ]
    machine.write(machine.proc / "self" / "mountinfo", "\n".join(lines) + "\n")


def limit(machine: Machine, folder: str, cpus: int) -> None:
    """Give a v2 group a number of CPUs."""
    machine.write(machine.cgroup / folder / "cpu.max", f"{cpus}00000 100000\n")


def test_v1_container_sees_its_own_group_at_the_top(machine: Machine) -> None:
    """The path of the host leads nowhere where a part of the hierarchy is mounted: it is cut."""
    machine.group("4:cpu,cpuacct:/docker/abc/inner\n0::/\n")
    mounted(machine, ("/docker/abc", "/odd name".replace(" ", "\\040"), "cgroup", "rw,cpuacct,cpu"))
    top = machine.cgroup / "odd name"
    machine.write(top / "cpu.cfs_quota_us", "400000\n")
    machine.write(top / "cpu.cfs_period_us", "100000\n")
    machine.write(top / "inner" / "cpu.cfs_quota_us", "150000\n")
    machine.write(top / "inner" / "cpu.cfs_period_us", "100000\n")
    assert machine.detect(8).cpu_quota == 1.5


def test_hybrid_takes_the_controller_from_where_it_is(machine: Machine) -> None:
    """With v1 and v2 mounted, each is followed with its own path, and the tightest counts."""
    machine.group("5:memory:/m\n4:cpu,cpuacct:/one\n0::/two\n")
    mounted(
        machine,
        ("/", "/unified", "cgroup2", "rw,nsdelegate"),
        ("/", "/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct"),
        ("/", "/memory", "cgroup", "rw,memory"),
    )
    limit(machine, "unified/one", 1)
    limit(machine, "memory/m", 1)
    assert machine.detect(8).cpu_quota is None
    machine.write(machine.cgroup / "cpu,cpuacct/one/cpu.cfs_quota_us", "300000\n")
    machine.write(machine.cgroup / "cpu,cpuacct/one/cpu.cfs_period_us", "100000\n")
    assert machine.detect(8).cpu_quota == 3.0
    limit(machine, "unified/two", 2)
    assert machine.detect(8).cpu_quota == 2.0


def test_hybrid_without_a_mount_table(machine: Machine) -> None:
    """Where the mounts are not known the usual places are looked at."""
    machine.group("0::/two\n")
    limit(machine, "unified/two", 2)
    assert machine.detect(8).cpu_quota == 2.0


@pytest.mark.parametrize(
    ("own", "shown", "quota"),
    [
        # Our namespace's root is our group.
        ("/", "/", 5.0),
        # A namespace entered, and a group of it.
        ("/job", "/", 1.0),
        # Moved out of the namespace: the mount belongs to other processes.
        ("/../other/job", "/", None),
        # The mount is older than the namespace: it shows an ancestor, and no way down.
        ("/", "/../..", 5.0),
        # The mount shows a neighbour.
        ("/", "/../neighbour", None),
        # Both outside, and ours within.
        ("/../x/job", "/../x", 1.0),
        # The two files disagree.
        ("/host/path", "/docker/abc", 5.0),
        ("/job//", "/", 1.0),
    ],
)
def test_namespaces(machine: Machine, own: str, shown: str, quota: float | None) -> None:
    """A mount counts from the group it shows down to ours; one that is not above us does not."""
    machine.group(f"0::{own}\n")
    mounted(machine, (shown, "", "cgroup2", "rw"))
    limit(machine, "", 5)
    limit(machine, "job", 1)
    assert machine.detect(8).cpu_quota == quota


def test_mounts_elsewhere_do_not_count(machine: Machine) -> None:
    """Only the requested folder is read, and no further entry of the table."""
    machine.group("0::/\n")
    machine.write(
        machine.proc / "self" / "mountinfo", f"30 1 0:1 / {machine.proc} rw - cgroup2 cgroup2 rw\n"
    )
    machine.write(machine.proc / "cpu.max", "100000 100000\n")
    assert machine.detect(8).cpu_quota is None


def test_root_group_without_the_file(machine: Machine) -> None:
    """The root group of v2 has no quota, and a v1 quota without its period does not count."""
    machine.group("4:cpu:/\n0::/\n")
    machine.write(machine.cgroup / "cpu" / "cpu.cfs_quota_us", "100000\n")
    assert machine.detect(8).cpu_quota is None


@pytest.mark.parametrize("text", ["1_0 100000", "٣ 100000", f"{'9' * 5000} 100000", "1 2 3", "0 0"])
def test_odd_numbers_are_garbage(machine: Machine, text: str) -> None:
    """Only plain digits are a number, up to a limit."""
    machine.write(machine.cgroup / "cpu.max", text + "\n")
    with pytest.raises(TopologyError, match="does not contain a CPU quota"):
        machine.detect(8)
