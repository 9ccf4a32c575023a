"""Schemas: as text, which crosses a process boundary without Arrow and is in records of runs.

Arrow's functions on arrays, imported with the first that is called.

Importing `pyarrow.compute` makes a Python function of each of several hundred, which takes as long
as all the rest of pyarrow. Planning and listing call none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from writers.errors import SchemaMismatch

if TYPE_CHECKING:
    import pyarrow as pa


def schema_text(schema: pa.Schema) -> str:
    """Return a schema in hexadecimal: base64 may contain "pwd=", which is hidden as a password."""
    text: str = schema.serialize().to_pybytes().hex()
    return text


@lru_cache(maxsize=8)
def read_schema(text: str) -> pa.Schema:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text)))


def selected(schema: pa.Schema, columns: Sequence[int]) -> pa.Schema:
    """Return some fields of a schema by index, in that order; as `RecordBatch.select` does."""
    import pyarrow as pa

    return pa.schema([schema.field(index) for index in columns], metadata=schema.metadata)


def check_schema(batch: pa.RecordBatch, schema: pa.Schema) -> None:
    """Raise SchemaMismatch if a batch has another schema than its writer was opened with."""
    if batch.schema.equals(schema):
        return
    found, promised = (
        [f"{field.name} ({field.type})" for field in each] for each in (batch.schema, schema)
    )
    differing = [
        f"column {number} is {its} instead of {wanted}"
        for number, (its, wanted) in enumerate(
            zip_longest(found, promised, fillvalue="absent"), start=1
        )
        if its != wanted
    ]
    reason = "; ".join(differing) or "a column may be null where the schema differs"
    raise SchemaMismatch(f"a batch does not have the columns of the schema: {reason}")


def text_class(field: pa.Field) -> str:
    """Return what a column holds by its metadata: one of the words below, or nothing.

    Values that no Arrow type holds exactly are carried as text. The key `text_class` of their field
    names their class. It is a `number`, a `timestamp` that follows a mask, or a `moment` (a date,
    or a timestamp) whose text is final. Timestamps that are `date` follow the mask for dates.
    """
    return field.metadata.get(b"text_class", b"").decode() if field.metadata else ""


def text_classes(schema: str) -> tuple[str, ...]:
    """Return the text class of each field of a schema, which `schema_text` has written."""
    return tuple(map(text_class, read_schema(schema)))


INFINITE = {"infinite": "extremes"}
"""Metadata of a date or timestamp column whose greatest number means infinity, and its negative
minus infinity, as DuckDB has it."""


def has_infinities(field: pa.Field) -> bool:
    """Return whether values of a column may be infinite (`INFINITE`)."""
    return bool(field.metadata) and field.metadata.get(b"infinite") == b"extremes"


def in_microseconds(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose timestamps in seconds or milliseconds are in microseconds."""
    import pyarrow as pa

    return pa.schema(
        [
            field.with_type(pa.timestamp("us", field.type.tz))
            if pa.types.is_timestamp(field.type) and field.type.unit in ("s", "ms")
            else field
            for field in schema
        ],
        metadata=schema.metadata,
    )


def with_field_ids(schema: pa.Schema, ids: Sequence[int]) -> pa.Schema:
    """Return a schema whose fields have Parquet's own numbers, one for each or none."""
    import pyarrow as pa

    if not ids:
        return schema
    return pa.schema(
        [
            field.with_metadata({**(field.metadata or {}), b"PARQUET:field_id": str(number)})
            for field, number in zip(schema, ids, strict=True)
        ],
        metadata=schema.metadata,
    )


class _Functions:
    """Replaces the module `pyarrow.compute`."""

    def __getattr__(self, name: str) -> Any:
        import pyarrow.compute

        found = getattr(pyarrow.compute, name)
        setattr(self, name, found)
        return found


pc: Any = _Functions()
