"""Jobs side by side: what an interrupt waits for."""

from __future__ import annotations

import threading

import pytest

from unloader.verification.files import Advance, in_parallel


def test_an_interrupt_does_not_wait_for_a_long_call() -> None:
    """A thread in a long read of a library does not hold up the user who interrupts."""
    begun, over = threading.Event(), threading.Event()

    def job(advance: Advance) -> None:
        begun.set()
        over.wait()

    def watch(jobs: int, amount: int) -> None:
        begun.wait()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_parallel([job, job, job], 1, watch)
    assert not over.is_set()
    over.set()


def test_an_error_waits_for_the_other_jobs() -> None:
    """No thread is left that could use a file or session that the caller closes."""
    begun, ended = threading.Event(), threading.Event()

    def other(advance: Advance) -> None:
        begun.set()
        ended.wait(0.2)
        ended.set()

    def failing(advance: Advance) -> None:
        begun.wait()
        raise ValueError("job")

    with pytest.raises(ValueError, match="job"):
        in_parallel([failing, other], 2)
    assert ended.is_set()
