"""The effects of the first, the second and the third signal on a run."""

from __future__ import annotations

import os
import signal

import pytest

from unloader.cli.signals import SIGNALS, stop_on_signals


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_and_a_third_would_kill(number: signal.Signals) -> None:
    """One sets the flag, two bring the default action back, the end brings the former handlers."""
    former = [signal.getsignal(each) for each in SIGNALS]
    told: list[str] = []
    with stop_on_signals(told.append) as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        assert signal.getsignal(number) is not signal.SIG_DFL
        os.kill(os.getpid(), number)
        assert [signal.getsignal(each) for each in SIGNALS] == [signal.SIG_DFL] * 3
    assert [signal.getsignal(each) for each in SIGNALS] == former
    assert [text.partition(";")[0].partition(":")[0] for text in told] == [
        "stopping",
        "still stopping",
    ]
