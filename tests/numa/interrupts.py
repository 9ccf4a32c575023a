"""Ctrl-C at a chosen moment: between any two lines of a module."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType


def interrupted(module: ModuleType, after_lines: int, act: Callable[[], None]) -> bool:
    """Act; interrupt it before that line of the module, counted as they run, the first being 1.

    Returns:
        Whether it came to that line; otherwise it has run to its end.
    """
    left = after_lines

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal left
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
