"""The command line: parse, call one function of the api, show the result, exit.

Nothing is imported before `main` is called: a spawned worker imports the script that started the
program, and with it this module.
"""

from __future__ import annotations

import gc
import sys
import time

TYPE_CHECKING = False
"""Not from `typing`: its import takes milliseconds in which a signal would show a traceback."""

_YOUNG_OBJECTS = 100_000
"""The number of new objects that starts the garbage collector."""

_INTERRUPT_STATUS = 130

_INTERRUPTED = (
    '{"version": 1, "event": "error", "at": "AT", "ts": "AT", "run_id": "", '
    '"kind": "Interrupted", "message": "interrupted before anything was unloaded", '
    '"hint": "run it again", "exit_code": 130, "traceback": null}\n'
)
"""The error as a line of a JSON log, for the time before the JSON modules are imported."""

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from unloader.cli.streams import Invocation


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; the only place where every exception ends.

    Args:
        arguments: Without the program's name; None takes the process's arguments.
    """
    invocation: Invocation | None = None
    try:
        from unloader.cli.signals import ignore_signals, interrupt_on_signals

        interrupt_on_signals()
        from unloader.cli import streams

        # Before anything that keeps a file open: that may become stdout until then.
        streams.make_ready()
        from unloader.worker.memory import keep_single

        keep_single()
        if arguments is None:
            # The program is ours alone. Its objects stay to its end. Searching them for cycles
            # again and again took 3 % of the CPU of a run over many tables.
            gc.set_threshold(_YOUNG_OBJECTS, 20, 20)
        from unloader.cli.group import dispatch

        invocation = streams.Invocation()
        status = dispatch(list(sys.argv[1:] if arguments is None else arguments), invocation)
        sys.stdout.flush()
        ignore_signals(for_good=arguments is None)
    except KeyboardInterrupt as error:
        return _interrupted() if invocation is None else _report(error, invocation)
    except Exception as error:
        if invocation is not None:
            return _report(error, invocation)
        from unloader.cli.signals import is_interrupt

        if is_interrupt(error):
            return _interrupted()
        raise
    return status


def program() -> NoReturn:
    """Run the command that this process was started for, and end it with its status."""
    status = main()
    from numa.processes.member import end_process

    # The user who interrupts does not wait for a thread that reads a slow disk.
    end_process(status, patient=status != _INTERRUPT_STATUS)


def _report(error: BaseException, invocation: Invocation) -> int:
    from unloader.cli import mistakes
    from unloader.cli.signals import ignore_signals

    ignore_signals()
    return mistakes.report(error, invocation)


def _interrupted() -> int:
    """Report a signal during the start; imports nothing, because an import was just interrupted."""
    text = "unloader: error: interrupted before anything was unloaded. Next: run it again\n"
    if "json" in sys.argv or "--log-format=json" in sys.argv:
        at = time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00", time.gmtime())
        text = _INTERRUPTED.replace("AT", at)
    if sys.stderr is not None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            pass
    return _INTERRUPT_STATUS
