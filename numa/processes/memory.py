"""How much memory a process holds."""

import os
from pathlib import Path


def resident_bytes(pid: int) -> int | None:
    """Return what a process holds in memory, None where the system does not tell or it is gone.

    From the second figure of /proc/PID/statm, which newer kernels keep to within some hundred KB.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return None
    # A process on its way out holds nothing any more, and says 0.
    return pages * os.sysconf("SC_PAGE_SIZE") or None
