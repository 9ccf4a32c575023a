"""Reads the CPU quota of our control group: `cpu.max` (v2) or `cpu.cfs_quota_us` (v1).

Neither the affinity mask nor `os.cpu_count()` shows it. Sources: the kernel's cgroup-v2.rst and
sched-bwc.rst; cgroup_namespaces(7) for what a container sees.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from numa.errors import TopologyError
from numa.kernel_files import not_understood, text_of

_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_ESCAPE = re.compile(r"\\([0-7]{3})")

_PLACES = (
    ("", ""),
    ("unified", ""),
    ("cpu", "cpu"),
    ("cpu,cpuacct", "cpu"),
    ("cpuacct,cpu", "cpu"),
)
"""Where distributions and container engines mount the groups, and the controller there."""


class _Mount(Struct, frozen=True, kw_only=True):
    """A folder that shows a part of the hierarchy that has the controller `cpu`."""

    folder: Path
    controller: str
    """`cpu` in v1, empty in v2: as /proc/self/cgroup names the hierarchy."""
    group: str | None
    """The group that the folder is, in the words of /proc/self/cgroup; None = not known."""


def cpu_quota(cgroup_root: Path, proc_root: Path) -> float | None:
    """Return the CPUs' worth of time granted by the tightest group above us, None if unlimited.

    Args:
        cgroup_root: Where the control groups are mounted, `/sys/fs/cgroup`; other mounts of them
            do not count.
        proc_root: `/proc`; `self/cgroup` in it names our group, `self/mountinfo` the place of each.
    Raises:
        TopologyError: A quota cannot be parsed; the message has the file and its text.
    """
    granted = [
        quota
        for folder in _folders(cgroup_root, proc_root)
        for quota in (_quota_v2(folder), _quota_v1(folder))
        if quota is not None
    ]
    return min(granted, default=None)


def throttling(cgroup_root: Path, proc_root: Path) -> dict[str, tuple[int, int]]:
    """Return how often the quotas of our group and of those above it were used up.

    Args:
        cgroup_root: As of `cpu_quota`.
        proc_root: The same.

    Returns:
        By folder of a group that has a quota: the periods in which its processes wanted to run, and
        those in which they had used it up before the end. Both only grow. Empty where no group has
        one, or its figures cannot be read.
    """
    found = {}
    for folder in _folders(cgroup_root, proc_root):
        try:
            lines = (text_of(folder / "cpu.stat") or "").splitlines()
        except TopologyError:
            continue
        counts = dict(line.split(maxsplit=1) for line in lines if " " in line)
        periods, throttled = (counts.get(name, "") for name in ("nr_periods", "nr_throttled"))
        if _NUMBER.fullmatch(periods) and _NUMBER.fullmatch(throttled) and int(periods):
            found[str(folder)] = (int(periods), int(throttled))
    return found


def _folders(cgroup_root: Path, proc_root: Path) -> Iterator[Path]:
    """Our group's folders and their ancestors. A limit set on any of them binds us."""
    groups = dict(_own_groups(proc_root))
    for mount in _mounts(cgroup_root, proc_root):
        steps = _steps(mount.group, groups.get(mount.controller, "/"))
        if steps is not None:
            yield from (mount.folder.joinpath(*steps[:depth]) for depth in range(len(steps) + 1))


def _own_groups(proc_root: Path) -> Iterator[tuple[str, str]]:
    """Yield (controller, group) for the hierarchies that can limit CPU time."""
    for line in (text_of(proc_root / "self" / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            yield "", group
        elif "cpu" in controllers.split(","):
            yield "cpu", group


def _mounts(cgroup_root: Path, proc_root: Path) -> list[_Mount]:
    try:
        table = text_of(proc_root / "self" / "mountinfo") or ""
    except TopologyError:
        # Tens of thousands of mounts: the usual places will do.
        table = ""
    found = [mount for line in table.splitlines() if (mount := _mount(line)) is not None]
    return [mount for mount in found if mount.folder.is_relative_to(cgroup_root)] or [
        _Mount(folder=cgroup_root / place, controller=controller, group=None)
        for place, controller in _PLACES
    ]


def _mount(line: str) -> _Mount | None:
    """Read a line of mountinfo (proc_pid_mountinfo(5)); None for other mounts."""
    fixed, dash, rest = line.partition(" - ")
    words, kind = fixed.split(), rest.split()
    if not dash or len(words) < 5 or len(kind) < 3:
        return None
    if kind[0] == "cgroup2":
        controller = ""
    elif kind[0] == "cgroup" and "cpu" in kind[2].split(","):
        controller = "cpu"
    else:
        return None
    group, folder = (_ESCAPE.sub(lambda m: chr(int(m[1], 8)), word) for word in words[3:5])
    return _Mount(folder=Path(folder), controller=controller, group=group)


def _steps(shown: str | None, own: str) -> tuple[str, ...] | None:
    """Return the way down from the group a mount shows to our own; None if we are not below it."""
    mine = _parts(own)
    if shown is None:
        # A container without its own cgroup namespace reads the host's path, which is not there;
        # the mount then shows our own group, so the top is always looked at.
        return tuple(step for step in mine if step != "..")
    top = _parts(shown)
    if mine[: len(top)] == top:
        mine = mine[len(top) :]
        # Above the root of our cgroup namespace, and down again elsewhere.
        return None if ".." in mine else mine
    if ".." in mine or (".." in top and set(top) != {".."}):
        return None
    # Either a mount from outside our namespace, which shows an ancestor as `/..` and not the way
    # down from it, or the two files disagree: the mounted group then counts as ours.
    return ()


def _parts(group: str) -> tuple[str, ...]:
    return tuple(step for step in PurePosixPath(group).parts if step.strip("/"))


def _quota_v2(folder: Path) -> float | None:
    # The root group has no such file, nor has a group whose parent does not share the controller.
    path = folder / "cpu.max"
    text = text_of(path)
    if text is None:
        return None
    words = text.split()
    if len(words) != 2:
        raise not_understood(path, "CPU quota", text)
    return None if words[0] == "max" else _ratio(path, text, words[0], words[1])


def _quota_v1(folder: Path) -> float | None:
    path = folder / "cpu.cfs_quota_us"
    text, period = text_of(path), text_of(folder / "cpu.cfs_period_us")
    if text is None or period is None or text.strip() == "-1":
        return None
    return _ratio(path, f"{text.strip()} of {period.strip()}", text.strip(), period.strip())


def _ratio(path: Path, text: str, quota: str, period: str) -> float:
    if not all(_NUMBER.fullmatch(word) and int(word) for word in (quota, period)):
        raise not_understood(path, "CPU quota", text)
    return int(quota) / int(period)
