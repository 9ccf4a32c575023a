"""What the parent asks of its source, asked again while it fails for a passing cause.

A night's job must not fail because the database restarts at the minute at which it begins, nor at
its end because the session that counts was ended. The delays are those of the units' retries.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from unloader.engine.schedule import delay_seconds, spread
from unloader.errors import Interrupted, UnloaderError
from unloader.events import Notice, Observer, Tick
from unloader.model import RetryOptions

T = TypeVar("T")

_POLL_SECONDS = 0.1


class Patience(Struct, frozen=True, kw_only=True):
    """How long, and what is told meanwhile."""

    retry: RetryOptions
    run_id: str
    """Spreads the delays: many jobs may begin at one minute."""
    stop: Callable[[], bool]
    """Asked several times a second; True ends a wait."""
    observe: Observer

    def with_retries(
        self,
        what: str | Callable[[], str],
        act: Callable[[], T],
        check: Callable[[], object] = lambda: None,
    ) -> T:
        """Return what an act returns, trying again after each error that may pass.

        Args:
            what: Names the act in the log, such as `connecting`; called after each failure where
                an act has several steps.
            act: Called once, and once more for each retry.
            check: Called after an error that may pass; raises what ends the attempts.

        Raises:
            UnloaderError: Of the last attempt, or one that does not pass.
            Interrupted: `stop` returned True during a wait.
        """
        jitter = spread(self.run_id)
        for failures in range(1, self.retry.retries + 1):
            try:
                return act()
            except UnloaderError as error:
                if not error.retryable:
                    raise
                check()
                name = what if isinstance(what, str) else what()
                delay = delay_seconds(self.retry, failures, jitter(name, failures))
                text = f"{name}, attempt {failures} failed: {error.message}"
                self.observe(Notice(text=f"{text} (next attempt in {delay:.3g} s)"))
            self._wait(delay, name)
        return act()

    def _wait(self, seconds: float, what: str) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.stop():
                raise Interrupted(f"stopped by a signal while waiting for the next attempt: {what}")
            self.observe(Tick())
            time.sleep(min(left, _POLL_SECONDS))
