"""Tells of calls that take long, while the thread that would tell of them is in the call itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

THREAD = "standstill"
_LOOKS = 4
"""In the time after which a call is told of."""


class Standstill:
    """Knows the calls that go on.

    Its thread is started by the first one, and ends when none has begun for a while: a thread for
    each call would cost more than most calls.
    """

    def __init__(self) -> None:
        """Begin without any, and without a thread."""
        self._change = threading.Lock()
        self._calls: dict[object, tuple[float, Callable[[], None]]] = {}
        """When each is told of, and how."""
        self._begun = 0
        self._is_running = False

    def begin(self, who: object, seconds: float, tell: Callable[[], None]) -> None:
        """Note a call; it is told of once, in another thread, if it takes longer than that."""
        with self._change:
            self._calls[who] = (time.monotonic() + seconds, tell)
            self._begun += 1
            if self._is_running:
                return
            self._is_running = True
        watch = threading.Thread(
            target=self._watch, args=(seconds / _LOOKS,), name=THREAD, daemon=True
        )
        try:
            watch.start()
        except RuntimeError:
            # The system refuses a thread for now, so nobody is told of this call.
            self._is_running = False

    def end(self, who: object) -> None:
        """Note that a call has come back."""
        with self._change:
            self._calls.pop(who, None)

    def _watch(self, seconds: float) -> None:
        begun = -1
        while True:
            time.sleep(seconds)
            with self._change:
                if begun == self._begun and not self._calls:
                    self._is_running = False
                    return
                begun, now = self._begun, time.monotonic()
                late = [who for who, (due, _) in self._calls.items() if now >= due]
                told = [self._calls.pop(who)[1] for who in late]
            for tell in told:
                tell()


STANDSTILL = Standstill()
"""That of this process."""
