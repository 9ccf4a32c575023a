"""A schema as bytes, so that it can cross a process boundary without anybody knowing Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def read_schema(message: bytes) -> pa.Schema:
    """Return the schema in an Arrow IPC message, as `pyarrow.Schema.serialize` makes it."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(message))
