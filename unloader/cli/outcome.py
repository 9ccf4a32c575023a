"""How a call of the program ends badly: one line on stderr and an exit status."""

from __future__ import annotations

import select
import sys
import traceback
from typing import TYPE_CHECKING

import click

from unloader.cli import render
from unloader.cli.streams import give_up
from unloader.errors import Interrupted, UnloaderError, UsageError, translate
from unloader.locations import redact

if TYPE_CHECKING:
    from unloader.cli.group import Invocation


def report(error: BaseException, invocation: Invocation) -> int:
    """Tell the user what ended the program and return the exit status.

    With `--json` the same is told on stdout, too, so that it always holds one JSON object.
    """
    if isinstance(error, BrokenPipeError) and _reader_left():
        return 0
    known = _known(error)
    if known is None:
        kind = type(error).__name__
        known = UnloaderError(
            f"internal error: {kind}: {error}" if str(error) else f"internal error: {kind}",
            "run again with --debug (unloader --debug ...) and report it",
        )
    details = "".join(traceback.format_exception(error)) if invocation.debug else ""
    _complain(f"{redact(details)}unloader: error: {one_line(known)}\n")
    if invocation.json:
        _answer(known)
    return known.exit_code


def one_line(error: UnloaderError) -> str:
    """Return what failed and what to do next, on one line and without any password."""
    return redact(render.one_line(str(error)).strip())


def _complain(text: str) -> None:
    # The exit status tells the same to those whose stderr is full or gone.
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        give_up(sys.stderr)


def _known(error: BaseException) -> UnloaderError | None:
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return Interrupted("interrupted before anything was unloaded", "run it again")
    if isinstance(error, click.ClickException):
        return _usage(error)
    return translate(error)


def _usage(error: click.ClickException) -> UsageError:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "unloader"
    return UsageError(message[:1].lower() + message[1:], f"see {path} --help")


def _answer(error: UnloaderError) -> None:
    answer = {
        "kind": type(error).__name__,
        "message": redact(error.message),
        "hint": redact(error.hint),
        "exit_code": error.exit_code,
    }
    try:
        render.emit_json({"error": answer})
    except OSError:
        give_up(sys.stdout)
    except UnloaderError:
        return  # the error being told, or one that came after it


def _reader_left() -> bool:
    """Return whether stdout is a pipe that nobody reads, and if so stop writing to it for good."""
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
