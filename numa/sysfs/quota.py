"""Reads the CPU quota of our control group: `cpu.max` (v2) or `cpu.cfs_quota_us` (v1).

Neither the affinity mask nor `os.cpu_count()` shows it. Source: the kernel's cgroup-v2.rst and
sched-bwc.rst.
"""

from pathlib import Path, PurePosixPath

from numa.errors import TopologyError


def cpu_quota(cgroup_root: Path, proc_root: Path) -> float | None:
    """Return the CPUs' worth of time granted by the tightest group above us, None if unlimited.

    Args:
        cgroup_root: Where the control groups are mounted, `/sys/fs/cgroup`.
        proc_root: `/proc`; `self/cgroup` under it says which group is ours.
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


def _folders(cgroup_root: Path, proc_root: Path) -> list[Path]:
    """Our group's folder and its ancestors. A limit set on any of them binds us."""
    # In a container without its own cgroup namespace the path is the host's and is not there;
    # the mount's root then is our own group, so the roots are always looked at.
    found = [cgroup_root, cgroup_root / "cpu", cgroup_root / "cpu,cpuacct"]
    for line in (_text(proc_root / "self" / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        steps = [step for step in PurePosixPath(group).parts if step not in ("/", "..")]
        mounts = found[1:3] if controllers else found[:1]
        found += [
            mount.joinpath(*steps[:depth]) for mount in mounts for depth in range(1, len(steps) + 1)
        ]
    return found


def _quota_v2(folder: Path) -> float | None:
    path = folder / "cpu.max"
    text = _text(path)
    if text is None:
        return None
    words = text.split()
    if len(words) != 2:
        raise _unreadable(path, text)
    return None if words[0] == "max" else _ratio(path, text, words[0], words[1])


def _quota_v1(folder: Path) -> float | None:
    path = folder / "cpu.cfs_quota_us"
    text, period = _text(path), _text(folder / "cpu.cfs_period_us")
    if text is None or period is None or text.strip() == "-1":
        return None
    return _ratio(path, f"{text.strip()} of {period.strip()}", text, period)


def _ratio(path: Path, text: str, quota: str, period: str) -> float:
    try:
        value = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        raise _unreadable(path, text) from None
    if value <= 0:
        raise _unreadable(path, text)
    return value


def _unreadable(path: Path, text: str) -> TopologyError:
    return TopologyError(
        f"{path} holds no CPU quota: {text.strip()[:80]!r}. Next: run with --numa off, "
        "or report the file's text."
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
