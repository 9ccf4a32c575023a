"""Messages of the program's loggers, and of its libraries', as lines of a log in JSON."""

from __future__ import annotations

import logging
from contextlib import suppress

from unloader.cli.display.json_log.writing import write


class LineHandler(logging.Handler):
    """Writes each record as one line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; nobody reading the log is no reason to fail."""
        facts = {"level": record.levelname, "logger": record.name, "text": self.format(record)}
        with suppress(OSError):
            write("debug", facts)
