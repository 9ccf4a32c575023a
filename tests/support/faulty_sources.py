"""Sources of SQLite files whose readers do what a source may do, or may not.

They are here and not in a test, as a worker's process has to import them.
"""

from __future__ import annotations

from unloader.sources.sqlite.source import SQLiteReader


class _Reader:
    def __init__(self, reader: SQLiteReader) -> None:
        self._reader = reader

    def close(self) -> None:
        self._reader.close()
