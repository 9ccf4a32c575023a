"""The kernel's way to write a set of CPUs or nodes: `0-3,8`."""

import re
from collections.abc import Iterable

from numa.errors import TopologyError

_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?", re.ASCII)

# Guess: far above any kernel's NR_CPUS (8192), so that garbage cannot eat the memory.
_HIGHEST_NUMBER = 1_000_000


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the numbers of a kernel list such as `0-3,8`, ascending, each once; `()` if blank.

    Raises:
        TopologyError: The text is no such list; the message has the text.
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
