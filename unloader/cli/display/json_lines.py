"""Standard error as JSON lines and nothing else.

While this is switched on, `sys.stderr` turns all text into lines, such as a warning of a library or
the traceback of a thread. Only text that is written to the descriptor stays as it is, such as the
message of an interpreter that crashes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TextIO, cast

from msgspec import Struct, to_builtins

from unloader.redaction import GuardedStream

VERSION = 1
"""Of the contract that `log` describes."""

_OPTION = "--log-format"
_VARIABLE = "UNLOADER_LOG_FORMAT"
_LONGEST = 65_536
"""Characters of text without an end of line, before it is written as a line all the same."""

run_id = ""
"""Of the run, in all lines from its start."""


class JsonLines(GuardedStream):
    """A text stream of JSON lines; other text becomes a line of the event `output`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.plain = stream
        self._unfinished = ""

    def write_line(self, line: str) -> None:
        """Write a line that is JSON."""
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
        if argument == _OPTION and at + 1 < len(arguments):
            last = arguments[at + 1]
        elif argument.startswith(f"{_OPTION}="):
            last = argument.partition("=")[2]
    return (last or os.environ.get(_VARIABLE)) == "json"


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
