"""Arrow's functions on arrays, imported with the first that is called.

Importing `pyarrow.compute` makes a Python function of each of several hundred, which takes as long
as all the rest of pyarrow. The native encoder calls none of them for most tables.
"""

from __future__ import annotations

from typing import Any


class _Functions:
    """Stands for the module `pyarrow.compute`."""

    def __getattr__(self, name: str) -> Any:
        import pyarrow.compute

        found = getattr(pyarrow.compute, name)
        setattr(self, name, found)
        return found


pc: Any = _Functions()
