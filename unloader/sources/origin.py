"""Where rows came from, as metadata of their schema: what a Parquet file records about itself.

A field's `source_type` is the database's own type and its `text_class` what its text stands for;
each source writes those where it makes its schema. This module adds what is the same for all of
them. Only what a repeated run would find again: files of two runs over the same rows are equal
byte by byte, so neither the run nor its snapshot is named here; the manifest has both.
"""

from __future__ import annotations

from msgspec.structs import replace

from unloader.model import Extract


def with_origin(extract: Extract) -> Extract:
    """Return an extract whose schema tells the source's kind, and the table or query."""
    from writers.schema import read_schema, schema_text

    projection = extract.projection
    if not projection.schema:
        return extract
    table, keys, most = extract.table, extract.keys, extract.limit_rows
    origin = {
        "unloader:source": extract.source.kind,
        "unloader:schema": table.schema if extract.query is None else None,
        "unloader:table": table.name if extract.query is None else None,
        "unloader:query": extract.query,
        "unloader:where": extract.where,
        "unloader:sample": None if keys is None else f"{keys.share * 100:.12g}% by {keys.column}",
        "unloader:limit_rows": None if most is None else str(most),
    }
    schema = read_schema(projection.schema)
    metadata = {**(schema.metadata or {}), **{key: text for key, text in origin.items() if text}}
    text = schema_text(schema.with_metadata(metadata))
    return replace(extract, projection=replace(projection, schema=text))
