"""Shared parts of the tests of this package: a disk that fills up, and a watch over threads."""

from __future__ import annotations

import resource
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FULL_AT = 1024 * 1024


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Fail a test that leaves a thread of a sink behind."""
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("sink ")]
    assert not left


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory where a file cannot grow past 1 MiB: a tiny file system, or a limit.

    Mounting is for root only. Elsewhere the kernel's limit on file sizes takes its place, which
    fails in the same call with another number (EFBIG for ENOSPC).
    """
    directory = tmp_path / "full"
    directory.mkdir()
    if _mounted(directory):
        yield directory
        subprocess.run(["umount", str(directory)], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_AT, hard))
    try:
        yield directory
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _mounted(directory: Path) -> bool:
    program = shutil.which("mount")
    if program is None:
        return False
    mount = [program, "-t", "tmpfs", "-o", f"size={FULL_AT}", "tmpfs", str(directory)]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0
