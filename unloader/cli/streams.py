"""The standard streams, made safe or turned into JSON lines, and the facts on one call.

A cron job or a daemon may start us without standard streams, or with full ones. Without care, a
file or a connection of the program would become descriptor 1 or 2, and receive text for the
terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO, cast

from msgspec import Struct, field, to_builtins

from unloader.redaction import GuardedStream, guard_streams

if TYPE_CHECKING:
    from unloader.request.job_files import Entry, Given

VERSION = 1
"""Of the lines in JSON: the contract that `display.log` describes."""

_LONGEST = 65_536
"""Characters of text without an end of line, before it is written as a line all the same."""

run_id = ""
"""Of the run, in all lines from its start."""

_closed: set[int] = set()


class Invocation(Struct):
    """One call of the program, filled in while its command line is read."""

    debug: bool = False
    json: bool = False
    data_on_stdout: bool = False
    """Standard output is for rows; an error is reported on stderr alone."""
    job_file: str | None = None
    """The file that set options, a plan file included."""
    planned: bool = False
    """That file is a plan."""
    job_values: Mapping[str, Given] = field(default_factory=dict)
    """The settings of the job file, by the keys of options, each with its place."""
    routes: Sequence[Entry] = ()
    """The routes of a job file that has several."""


def make_ready() -> None:
    """Point closed standard streams at nothing, let every character be written, and no password.

    Descriptors are opened for child processes, too. Call it before anything else opens a file.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            _closed.add(descriptor)
            # The lowest free descriptor is this one: those below it are open by now.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "w" if descriptor else "r"
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        # A name in the database may not exist in the terminal's character set.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    guard_streams()


def was_closed(descriptor: int) -> bool:
    """Return whether the program was started without this standard stream."""
    return descriptor in _closed


def give_up(stream: TextIO) -> None:
    """Stop writing to a stream: its buffered text is dropped.

    The interpreter flushes the streams once more at its end, and would complain.
    """
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


class JsonLines(GuardedStream):
    """Standard error as JSON lines; other text becomes a line of the event `output`.

    Such text is a warning of a library or the traceback of a thread. Only text that is written to
    the descriptor stays as it is, such as the message of an interpreter that crashes.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.plain = stream
        self._unfinished = ""

    def write_line(self, line: str) -> None:
        self.plain.write(line + "\n")
        self.plain.flush()

    def write(self, text: str) -> int:
        """Take text from any code; whole lines are written immediately."""
        if not isinstance(text, str):
            raise TypeError("a text stream takes text")
        *lines, self._unfinished = (self._unfinished + text).split("\n")
        if len(self._unfinished) > _LONGEST:
            lines, self._unfinished = [*lines, self._unfinished], ""
        for line in filter(str.strip, lines):
            self.write_line(line_of("output", {"text": line}))
        return len(text)

    def finish(self) -> None:
        """Write the rest without an end of line."""
        if self._unfinished:
            self.write("\n")


def switch(on: bool) -> None:
    """Switch standard error to JSON lines, or back."""
    stream = sys.stderr
    if on and not isinstance(stream, JsonLines):
        sys.stderr = cast(TextIO, JsonLines(stream))
    elif not on and isinstance(stream, JsonLines):
        sys.stderr = stream.plain


def asked_for(arguments: Sequence[str]) -> bool:
    """Return whether a command line, or else the environment, asks for JSON lines.

    Used before the options are read, and when they cannot be read.
    """
    last = None
    for at, argument in enumerate(arguments):
        if argument == "--log-format" and at + 1 < len(arguments):
            last = arguments[at + 1]
        elif argument.startswith("--log-format="):
            last = argument.partition("=")[2]
    return (last or os.environ.get("UNLOADER_LOG_FORMAT")) == "json"


def line_of(event: str, facts: Struct | Mapping[str, Any]) -> str:
    """Return a line without its end, in ASCII: the stream may have any encoding."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    head = {"version": VERSION, "event": event, "at": at, "ts": at, "run_id": run_id}
    return json.dumps({**head, **to_builtins(facts)})


def write(event: str, facts: Struct | Mapping[str, Any], text: str | None = None) -> None:
    """Write a line to standard error: as JSON, or as the text if JSON is not switched on.

    Without a text, it is JSON in any case. If the stream is full or gone, the error is OSError.
    """
    stream = sys.stderr
    if isinstance(stream, JsonLines):
        stream.finish()
        stream.write_line(line_of(event, facts))
    else:
        stream.write((line_of(event, facts) if text is None else text) + "\n")
        stream.flush()


def notice(text: str) -> None:
    """Write a notice that no display shows; a lost one must not fail the command."""
    with suppress(OSError):
        write("notice", {"text": text}, f"unloader: notice: {text}")
