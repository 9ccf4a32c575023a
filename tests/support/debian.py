"""Programs from Debian's packages, which tests install if this is root and apt-get is there.

A program that is there already is taken as it is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=60", "-o", "Dpkg::Use-Pty=0")
_SECONDS = 300
_LOCK = "unloader-vm"
"""Folder of the cache with the lock of tests/vm, which calls apt-get, too: it takes one call at a
time, and another one fails."""


class Missing(Exception):
    """The programs are not there; the text says why."""


def prepared(
    programs: tuple[str, ...], packages: tuple[str, ...], *, switch: str, install: bool = True
) -> None:
    """Install packages if their programs are not there.

    Args:
        programs: Their commands.
        packages: The first ones have the programs' names and are named in the reason.
        switch: The variable that is set to `off` where nothing is to be installed or started.
        install: Whether packages may be installed.

    Raises:
        Missing: A program cannot be had.
    """
    wanted = f"install {' and '.join(packages)}"
    if os.environ.get(switch) == "off":
        raise Missing(f"{switch} is off")
    if _are_there(programs):
        return
    if not install:
        raise Missing(f"{wanted}, or run the long tests, which do")
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(f"{wanted}: this is not root with apt-get")
    try:
        with _alone():
            if not _are_there(programs):  # Another process of tests may have been first.
                _apt("update")
                _apt("install", "--yes", "--no-install-recommends", *packages)
    except (Missing, OSError) as error:
        raise Missing(f"{wanted}: {error}") from error
    if not _are_there(programs):
        raise Missing(f"{wanted}: the packages of that name here lack one of {', '.join(programs)}")


def _are_there(programs: tuple[str, ...]) -> bool:
    return all(map(shutil.which, programs))


@contextmanager
def _alone() -> Iterator[None]:
    """Keep out the other processes of the tests that install something."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / _LOCK
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _apt(*arguments: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            [*_APT, *arguments], env=env, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"apt-get {arguments[0]} took more than {_SECONDS} s") from None
    if done.returncode:
        said = (done.stderr.strip() or "nothing was said").splitlines()
        raise Missing(f"apt-get {arguments[0]} failed: {said[-1]}")
