"""Reads the kernel's small files, and its lists of CPUs or nodes: `0-3,8`.

Nothing here hangs or reads without end.
"""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from numa.model import TopologyError

# The longest that is read is the mount table of a host full of containers: some 100 KB. A row of
# 1,024 distances is 4 KB.
_MOST_BYTES = 1 << 22

_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?", re.ASCII)

_ESCAPE = re.compile(r"\\([0-7]{3})")

# Guess: far above any kernel's NR_CPUS (8192), so that garbage cannot eat the memory.
_HIGHEST_NUMBER = 1_000_000


def text_of(path: str | Path) -> str | None:
    """Return the file's text; None if it does not exist, is unreadable, or is not a plain file.

    A file of more than 4 MiB, which no file of the kernel is, is a `TopologyError`.
    """
    try:
        # A named pipe in a copied tree would block an ordinary open for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = bytearray()
        while piece := os.read(descriptor, 1 << 16):
            data += piece
            if len(data) > _MOST_BYTES:
                raise TopologyError(
                    f"{path} is larger than {_MOST_BYTES} bytes: it is not a file of the kernel.",
                    "run with --numa off, or give a folder with the layout of /sys/devices/system.",
                )
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data.decode("utf-8", errors="replace")


def not_understood(path: str | Path, wanted: str, text: str) -> TopologyError:
    """Return the error for a file whose content is not the wanted one."""
    return TopologyError(
        f"{path} does not contain a {wanted}: {text.strip()[:80]!r}.",
        "run with --numa off, or report the file's text.",
    )


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the numbers of a kernel list such as `0-3,8`, ascending, each once; `()` if blank.

    A `TopologyError` has the text that is not such a list.
    """
    numbers: set[int] = set()
    counted = 0
    for part in text.strip().split(",") if text.strip() else ():
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        counted += last - first + 1
        # Ranges that overlap a thousand times over would keep us busy for hours.
        if not first <= last <= _HIGHEST_NUMBER or counted > 2 * _HIGHEST_NUMBER:
            raise TopologyError(
                f"not a list of numbers: {text.strip()[:80]!r}.",
                "write it as numbers and ranges with commas, such as 0-3,8.",
            )
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def cpu_list_text(cpus: Iterable[int]) -> str:
    """Return the numbers as the kernel writes them, `0-3,8`: the inverse of `parse_cpu_list`."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def mounts(proc_root: Path) -> list[tuple[str, str, str, str, str]]:
    """Return root, place, type, source and options of each mount, in the order of mounting.

    Empty where the table cannot be read, or has tens of thousands of mounts. Source:
    proc_pid_mountinfo(5).
    """
    try:
        table = text_of(proc_root / "self" / "mountinfo") or ""
    except TopologyError:
        return []
    found = []
    for line in table.splitlines():
        fixed, _, rest = line.partition(" - ")
        words = (*fixed.split()[3:5], *rest.split()[:3])
        if len(words) == 5:
            root, place, *others = (_ESCAPE.sub(lambda m: chr(int(m[1], 8)), w) for w in words)
            found.append((root, place, others[0], others[1], others[2]))
    return found
