"""Which machine this is, as it is written down for other ones."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


def host_name() -> str:
    """Return the name of this machine."""
    return os.uname().nodename


@cache
def boot_id() -> str:
    """Return what tells this start of this machine from all others; empty where none is known.

    Containers on one machine have the same, and the locks of one kernel.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
