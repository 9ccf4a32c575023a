"""The command line: parse, call one function of the api, show the result, exit.

Nothing is imported before `main` is called: a spawned worker imports the script that started the
program, and with it this module.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; the only place where every exception ends.

    Args:
        arguments: Without the program's name; None takes those of the process.
    """
    from unloader.cli.group import Invocation, dispatch

    for stream in (sys.stdout, sys.stderr):
        # A name in the database may not exist in the terminal's character set.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    invocation = Invocation()
    try:
        status = dispatch(list(sys.argv[1:] if arguments is None else arguments), invocation)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        from unloader.cli import outcome

        return outcome.report(error, invocation)
    return status
