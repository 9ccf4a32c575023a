"""How a call of the program ends badly: one line on stderr and an exit status."""

from __future__ import annotations

import select
import sys
import traceback
from typing import TYPE_CHECKING, Any

import click

from unloader.cli import mistakes
from unloader.cli.display import json_lines, render
from unloader.cli.signals import is_interrupt
from unloader.cli.streams import give_up
from unloader.errors import Interrupted, UnloaderError, translate

if TYPE_CHECKING:
    from unloader.cli.invocation import Invocation


def report(error: BaseException, invocation: Invocation) -> int:
    """Tell the user what ended the program and return the exit status.

    With `--json` the same is written to stdout, too, so that it always holds one JSON object,
    unless stdout is for the data.
    """
    if isinstance(error, BrokenPipeError) and _reader_left():
        return 0
    known = known_error(error)
    details = _details(error) if invocation.debug else ""
    _complain(known, details)
    if invocation.json and not invocation.data_on_stdout:
        _answer(known)
    return known.exit_code


def known_error(error: BaseException) -> UnloaderError:
    """Return the error that ended the program, in the words for the user."""
    known = _known(error)
    if known is not None:
        return known
    if is_interrupt(error):
        return _interrupted()
    kind = type(error).__name__
    return UnloaderError(
        f"internal error: {kind}: {error}" if str(error) else f"internal error: {kind}",
        "run again with --debug (unloader --debug ...) and report it",
    )


def one_line(error: UnloaderError) -> str:
    """Return what failed and what to do next, on one line."""
    return render.one_line(str(_shortened(error))).strip()


def _shortened(error: UnloaderError) -> UnloaderError:
    """Return the error without the middle of long values, which may have megabytes."""
    return UnloaderError(*(render.shortened(each) for each in (error.message, error.hint)))


def _details(error: BaseException) -> str:
    """Return the traceback; for a wrong command line without its words."""
    if not isinstance(error, click.ClickException):
        return "".join(traceback.format_exception(error))
    return f"Traceback:\n{''.join(traceback.format_tb(error.__traceback__))}"


def _complain(error: UnloaderError, details: str) -> None:
    # The exit status tells the same to those whose stderr is full or gone.
    try:
        if json_lines.is_on():
            json_lines.write("error", {**_facts(error), "traceback": details or None})
            return
        sys.stderr.write(f"{render.lines(details)}unloader: error: {one_line(error)}\n")
        sys.stderr.flush()
    except OSError:
        give_up(sys.stderr)


def _known(error: BaseException) -> UnloaderError | None:
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return _interrupted()
    if isinstance(error, click.ClickException):
        return mistakes.usage_error(error)
    if isinstance(error, OSError) and _came_from_click(error):
        return render.lost_answer(error)
    return translate(error)


def _interrupted() -> Interrupted:
    return Interrupted("interrupted before anything was unloaded", "run it again")


def _came_from_click(error: OSError) -> bool:
    """Return whether click was writing a help page or the version when it was refused."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__") == click.echo.__module__ for frame in frames)


def _facts(error: UnloaderError) -> dict[str, Any]:
    shown = _shortened(error)
    return {
        "kind": type(error).__name__,
        "message": shown.message,
        "hint": shown.hint,
        "exit_code": error.exit_code,
    }


def _answer(error: UnloaderError) -> None:
    try:
        # Whole: it is for another program, and a part of it would mend a part.
        script = {"script": error.script} if error.script else {}
        render.emit_json({"error": {**_facts(error), **script}})
    except OSError:
        give_up(sys.stdout)
    except UnloaderError:
        return  # the error being told, or one that came after it


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
