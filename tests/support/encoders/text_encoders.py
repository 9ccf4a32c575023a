"""The text encoders under test, by name, and why one of them is not there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from writers.model import TextFormat
from writers.text.delimited import PlainEncoder

NAMES = ("plain", "native")


def encoder(name: str, schema: pa.Schema, format: TextFormat) -> Any:
    """Return an encoder; a test that asks for a native one is skipped where none was built."""
    if name == "plain":
        return PlainEncoder(schema, format)
    native_or_skip()
    from writers.native.encoder import NativeEncoder

    return NativeEncoder(schema, format)


def native_or_skip() -> None:
    """Skip the test, with the reason, where the native encoder cannot be used."""
    from writers.native import library

    if reason := library.why_not():
        pytest.skip(f"no native encoder: {reason}")


def written(name: str, batch: pa.RecordBatch, format: TextFormat) -> bytes:
    """Return a whole file of one batch: preamble, header and records."""
    made = encoder(name, batch.schema, format)
    return bytes(made.preamble()) + bytes(made.header()) + bytes(made.encode(batch))
