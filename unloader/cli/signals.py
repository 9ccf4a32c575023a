"""SIGINT, SIGTERM and SIGHUP: one rule for all three, from the first instruction to the last.

Before a run begins, and in commands without one, a signal raises KeyboardInterrupt, which ends the
program with one line. While a run goes on, the first signal asks it to stop in good order. After a
run a signal comes too late: what is done stays done. A signal that was ignored when the program
started stays ignored, as `nohup` and background jobs of a shell want it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STOPPING = "stopping: the work units in progress are ended"
STILL_STOPPING = "still stopping; one more signal ends the program immediately"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_AGAIN_SECONDS = 0.01

_received: list[int] = []


def heed() -> None:
    """Let each of the signals raise KeyboardInterrupt, once; later ones are passed over."""
    _received.clear()
    sys.unraisablehook = _raise_again
    for number in _not_ignored():
        signal.signal(number, _interrupt)


def pass_over() -> None:
    """Let signals change nothing any more: the program is about to end with a status of its own."""
    _raise_no_more()
    for number in _not_ignored():
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, _late)


def pass_over_for_good() -> None:
    """Ignore the signals: at its end the interpreter gives others their default action back."""
    for number in _not_ignored():
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def seen_while_waiting() -> Iterator[None]:
    """Have the signals of `heed` seen while the main thread waits for as long as somebody takes.

    Python looks for signals before a call that waits in the kernel, and again when one breaks it
    off. One that comes in between is not seen before the wait is over: so each is sent once more,
    until it is.
    """
    # Not needed at the start, whose imports are to be few.
    import socket
    import threading

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
    """Return whether a signal is behind an error.

    An import that is broken off may end with an error of another kind: what a class calls while it
    is made ends in Python before 3.12 with a RuntimeError, whatever it raised.
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
    """Yield a function that says whether a signal asked to stop.

    The first signal sets that flag, the second gives the signals their default action back, so
    that a third one kills. Former handlers return at the end, but for those of `heed`: a signal
    after the run must not turn its status into another.

    Args:
        announce: Tells the user; called within the handler, so it must not use buffered output.
        earlier: A signal that came before counts, too.
    """
    # One that was raised where an exception is lost, such as in a destructor, still counts.
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
    pass_over()
    raise KeyboardInterrupt


def _raise_again(lost: Any) -> None:
    """Raise a KeyboardInterrupt a moment later that was lost in a destructor or a callback.

    The imports of the start are full of callbacks that Python throws the exceptions of away.
    """
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _raise_no_more() -> None:
    """Take back what `_raise_again` has begun; an alarm of anybody else goes on."""
    if signal.getsignal(signal.SIGALRM) is _interrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _late(number: int, frame: FrameType | None) -> None:
    """Do nothing; whoever sends more signals ends the program at once."""
    _received.append(number)
    if len(_received) > 2:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
