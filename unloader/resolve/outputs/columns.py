"""The columns of one output of several, out of those of the scan."""

from __future__ import annotations

from msgspec.structs import replace

from unloader.model import Projection


def projection_of_output(projection: Projection, number: int) -> Projection:
    """Return the columns of one output, in its order."""
    from writers.schema import read_schema, schema_text, selected

    taken = projection.outputs[number]
    schema = projection.schema
    if schema:
        schema = schema_text(selected(read_schema(schema), taken))
    return replace(
        projection,
        columns=tuple(projection.columns[index] for index in taken),
        schema=schema,
        outputs=(tuple(range(len(taken))),),
        filters=None,
    )
