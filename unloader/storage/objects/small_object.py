"""A small object that is written by the parent process, as a file that is open."""

from __future__ import annotations

import io
from collections.abc import Callable


class SmallObject(io.BytesIO):
    """Memory that becomes an object once it is closed.

    Args:
        put: Writes the object.
    """

    def __init__(self, put: Callable[[bytes], object]) -> None:
        super().__init__()
        self._put = put

    def close(self) -> None:
        """Write it, unless it was closed or is given up because of an error."""
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._put(data)

    def __exit__(self, kind: object, *exception: object) -> None:
        """Write it, if all went well."""
        if kind is not None:
            super().close()
        self.close()
