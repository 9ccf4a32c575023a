"""SIGINT, SIGTERM and SIGHUP: one rule for all three, from the first instruction to the last.

Before a run begins, and in commands without one, a signal raises KeyboardInterrupt, which ends the
program with one line. During a run, the first signal asks it to stop in an orderly way. After a
run, a signal comes too late and changes nothing. A signal that was ignored when the program started
stays ignored, as `nohup` and background jobs of a shell need it.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STOPPING = "stopping: the work units in progress are discarded"
STILL_STOPPING = "still stopping; one more signal ends the program immediately"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_AGAIN_SECONDS = 0.01

_received: list[int] = []


def interrupt_on_signals() -> None:
    """Make the first of the signals raise KeyboardInterrupt; later signals are ignored."""
    _received.clear()
    sys.unraisablehook = _raise_again
    for number in _not_ignored():
        signal.signal(number, _interrupt)


def ignore_signals(*, for_good: bool = False) -> None:
    """Ignore further signals: the program is about to end with its exit status.

    At its end, the interpreter restores the default action of signals that are not ignored
    `for_good`.
    """
    _raise_no_more()
    for number in _not_ignored():
        if for_good:
            signal.signal(number, signal.SIG_IGN)
        elif signal.getsignal(number) is _interrupt:
            signal.signal(number, _late)


@contextmanager
def seen_while_waiting() -> Iterator[None]:
    """Handle signals while the main thread waits without a time limit, before a run.

    Python checks for signals before a call that waits in the kernel, and again when a signal
    interrupts the call. A signal between the check and the call is not handled before the wait is
    over. So each signal is sent again until it is handled.
    """
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    main, over = threading.get_ident(), threading.Event()

    def send_again() -> None:
        while number := reading.recv(1):
            while not over.wait(_AGAIN_SECONDS) and signal.getsignal(number[0]) is _interrupt:
                signal.pthread_kill(main, number[0])

    thread = threading.Thread(target=send_again, name="signals", daemon=True)
    thread.start()
    former = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(former)
        over.set()
        writing.close()
        thread.join()
        reading.close()


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether a signal caused an error.

    An interrupted import may end with an error of another kind: before Python 3.12, a call during
    the creation of a class ends with a RuntimeError for every exception.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def stop_on_signals(
    announce: Callable[[str], None], *, earlier: bool = True
) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal asked to stop.

    The first signal sets that flag. The second signal restores the default action, so that a third
    signal kills. The former handlers are restored at the end, but `_interrupt` is not: a signal
    after the run must not change its status. `announce` is called in the handler, so it must not
    use buffered output. Signals before count only if `earlier`.
    """
    # A signal whose exception was lost, such as in a destructor, still counts.
    received = list(_received) if earlier else []
    _raise_no_more()

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            announce(STOPPING)
            return
        for each in former:
            signal.signal(each, signal.SIG_DFL)
        announce(STILL_STOPPING)

    former = {number: signal.getsignal(number) for number in _not_ignored()}
    for number in former:
        signal.signal(number, handle)
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in former.items():
            signal.signal(number, _late if handler in (_interrupt, _late) else handler)


def _not_ignored() -> tuple[signal.Signals, ...]:
    return tuple(each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    ignore_signals()
    raise KeyboardInterrupt


def _raise_again(lost: Any) -> None:
    """Raise a KeyboardInterrupt again that was lost in a destructor or a callback.

    The imports of the start run many callbacks whose exceptions Python drops.
    """
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _raise_no_more() -> None:
    """Cancel the alarm of `_raise_again`; other alarms are kept."""
    if signal.getsignal(signal.SIGALRM) is _interrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _late(number: int, frame: FrameType | None) -> None:
    """Do nothing for two signals; later signals end the program immediately."""
    _received.append(number)
    if len(_received) > 2:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
