"""How a call of the program ends badly: one line on stderr and an exit status."""

from __future__ import annotations

import select
import sys
import traceback

import click

from unloader.cli import mistakes
from unloader.cli.display import json_lines, render
from unloader.cli.invocation import Invocation
from unloader.cli.signals import is_interrupt
from unloader.cli.streams import give_up
from unloader.errors import Interrupted, UnloaderError, translate


def report(error: BaseException, invocation: Invocation) -> int:
    """Report what ended the program and return the exit status.

    With `--json` the same is written to stdout, too, so that it always holds one JSON object,
    unless stdout is for the data.
    """
    if isinstance(error, BrokenPipeError) and _reader_left():
        return 0
    known, details = known_error(error), ""
    if invocation.debug:
        details = "".join(traceback.format_exception(error))
        if isinstance(error, click.ClickException):
            # Its text may repeat words of the command line.
            details = f"Traceback:\n{''.join(traceback.format_tb(error.__traceback__))}"
    # Without the middle of long values, which may have megabytes.
    message, hint = render.shortened(known.message), render.shortened(known.hint)
    facts = {
        "kind": type(known).__name__,
        "message": message,
        "hint": hint,
        "exit_code": known.exit_code,
    }
    # The exit status reports the same where stderr is full or gone.
    try:
        if json_lines.is_on():
            json_lines.write("error", {**facts, "traceback": details or None})
        else:
            line = render.one_line(str(UnloaderError(message, hint))).strip()
            sys.stderr.write(f"{render.lines(details)}unloader: error: {line}\n")
            sys.stderr.flush()
    except OSError:
        give_up(sys.stderr)
    if invocation.json and not invocation.data_on_stdout:
        try:
            # Whole: it is for another program, and a part of it would mend a part.
            script = {"script": known.script} if known.script else {}
            render.emit_json({"error": {**facts, **script}})
        except OSError:
            give_up(sys.stdout)
        except UnloaderError:
            pass  # The error that is being reported, or one that came after it.
    return known.exit_code


def known_error(error: BaseException) -> UnloaderError:
    """Return the error that ended the program, in the words for the user."""
    if isinstance(error, click.ClickException):
        return mistakes.usage_error(error)
    if isinstance(error, OSError):
        # click was writing a help page or the version when it was refused.
        frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        if any(frame.f_globals.get("__name__") == click.echo.__module__ for frame in frames):
            return render.lost_answer(error)
    if (known := translate(error)) is not None:
        return known
    if isinstance(error, click.Abort) or is_interrupt(error):
        return Interrupted("interrupted before anything was unloaded", "run it again")
    kind = type(error).__name__
    return UnloaderError(f"internal error: {kind}{f': {error}' if str(error) else ''}")


def _reader_left() -> bool:
    """Return whether stdout is a pipe without a reader; if so, stop writing to it."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    if not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        return False
    give_up(sys.stdout)
    return True
