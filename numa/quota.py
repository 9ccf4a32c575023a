"""Reads the CPU quota of our control group: `cpu.max` (v2) or `cpu.cfs_quota_us` (v1).

Neither the affinity mask nor `os.cpu_count()` shows it. Sources: the kernel's cgroup-v2.rst and
sched-bwc.rst; cgroup_namespaces(7) for what a container sees.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from numa.errors import TopologyError
from numa.kernel_files import mounts, not_understood, text_of

_NUMBER = re.compile(r"\d{1,18}", re.ASCII)

_PLACES = (
    ("", ""),
    ("unified", ""),
    ("cpu", "cpu"),
    ("cpu,cpuacct", "cpu"),
    ("cpuacct,cpu", "cpu"),
)
"""Where distributions and container engines mount the groups, and the controller there."""


def cpu_quota(cgroup_root: Path, proc_root: Path) -> float | None:
    """Return the CPUs' worth of time granted by the tightest group above us, None if unlimited.

    Mounts of control groups elsewhere than below `cgroup_root` do not count. A `TopologyError` has
    the file, and its text that is not a quota.
    """
    granted: list[float] = []
    for folder in _folders(cgroup_root, proc_root):
        # The root group has no such file, nor has a group whose parent does not share the
        # controller.
        path = folder / "cpu.max"
        text = text_of(path)
        if text is not None:
            words = text.split()
            if len(words) != 2:
                raise not_understood(path, "CPU quota", text)
            if words[0] != "max":
                granted.append(_ratio(path, text, words[0], words[1]))
        path = folder / "cpu.cfs_quota_us"
        quota, period = text_of(path), text_of(folder / "cpu.cfs_period_us")
        if quota is not None and period is not None and quota.strip() != "-1":
            quota, period = quota.strip(), period.strip()
            granted.append(_ratio(path, f"{quota} of {period}", quota, period))
    return min(granted, default=None)


def throttling(cgroup_root: Path, proc_root: Path) -> dict[str, tuple[int, int]]:
    """Return how often the quotas of our group and of the groups above it were used up.

    By folder of a group with a quota: the periods in which its processes wanted to run, and the
    periods in which they had used it up before the end. Both only grow.
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
    groups: dict[str, str] = {}
    """By controller: `cpu` in v1, empty in v2."""
    for line in (text_of(proc_root / "self" / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            groups[""] = group
        elif "cpu" in controllers.split(","):
            groups["cpu"] = group
    found: list[tuple[Path, str, str | None]] = []
    """The folder of a mount, its controller, and the group that it shows; None = not known."""
    for shown, place, kind, _, options in mounts(proc_root):
        if not Path(place).is_relative_to(cgroup_root):
            continue
        if kind == "cgroup2":
            found.append((Path(place), "", shown))
        elif kind == "cgroup" and "cpu" in options.split(","):
            found.append((Path(place), "cpu", shown))
    # Without a table the usual places will do.
    usual = [(cgroup_root / place, controller, None) for place, controller in _PLACES]
    for folder, controller, top in found or usual:
        steps = _steps(top, groups.get(controller, "/"))
        if steps is not None:
            yield from (folder.joinpath(*steps[:depth]) for depth in range(len(steps) + 1))


def _steps(shown: str | None, own: str) -> tuple[str, ...] | None:
    """Return the way down from the group a mount shows to our own; None if we are not below it."""
    mine, top = (
        tuple(step for step in PurePosixPath(group).parts if step.strip("/"))
        for group in (own, shown or "")
    )
    if shown is None:
        # A container without its own cgroup namespace reads the host's path, which is not there;
        # the mount then shows our own group, so the top is always looked at.
        return tuple(step for step in mine if step != "..")
    if mine[: len(top)] == top:
        mine = mine[len(top) :]
        # Above the root of our cgroup namespace, and down again elsewhere.
        return None if ".." in mine else mine
    if ".." in mine or (".." in top and set(top) != {".."}):
        return None
    # Either a mount from outside our namespace, which shows an ancestor as `/..` and not the way
    # down from it, or the two files disagree: the mounted group then counts as ours.
    return ()


def _ratio(path: Path, text: str, quota: str, period: str) -> float:
    if not all(_NUMBER.fullmatch(word) and int(word) for word in (quota, period)):
        raise not_understood(path, "CPU quota", text)
    return int(quota) / int(period)
