"""Messages of `--debug` on a terminal, which must not obey what a server says."""

from __future__ import annotations

import logging
import sys

from unloader.cli.display import render


class TerminalHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes each record to stderr, with control characters written out."""

    def __init__(self) -> None:
        """Take the present stderr."""
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def format(self, record: logging.LogRecord) -> str:
        """Return a record and its traceback as they are shown."""
        return render.lines(super().format(record))
