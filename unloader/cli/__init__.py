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
    from unloader.cli.streams import make_ready

    # First of all: until then a file that is opened may become stdout.
    make_ready()
    from unloader.cli.group import Invocation, dispatch

    invocation = Invocation()
    try:
        status = dispatch(list(sys.argv[1:] if arguments is None else arguments), invocation)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        from unloader.cli import outcome

        return outcome.report(error, invocation)
    return status
