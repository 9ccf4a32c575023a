"""What the list of processes shows of a process that was forked: not the command of its parent."""

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_STAT = Path("/proc/self/stat")

# Of the line's fields after the name, which may hold blanks. Source: proc(5), where "arg_start" is
# field 48 and the name field 2.
_ARG_START = 48 - 3


def set_title(words: Sequence[str]) -> None:
    """Show these words as the arguments of this process, as many as there is room for.

    They are written over the arguments that it was started with, as no other way is open to all
    users. Nothing happens where the kernel does not tell where those are.
    """
    with suppress(OSError, IndexError, ValueError):
        fields = _STAT.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_START + 1])
        if 0 < start < end:
            text = "\0".join(words).encode()[: end - start - 1]
            ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
