"""SIGINT and SIGTERM while a run goes on: stop in good order first, and only then at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = "stopping: units in flight are given up, finished ones are kept"
STILL_STOPPING = "still stopping; one more signal ends the program at once"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(announce: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether a signal asked to stop.

    The first signal sets that flag, the second gives both signals their default action back, so
    that a third one kills. Former handlers return at the end.

    Args:
        announce: Tells the user; called within the handler, so it must not use buffered output.
    """
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            announce(STOPPING)
            return
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        announce(STILL_STOPPING)

    former = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
