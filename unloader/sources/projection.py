"""From the readings a source offers to the columns of one scan that serves all outputs.

Each output gets for each column the first reading that is exact for it. Outputs that choose the
same reading share one column of the scan; the others have one each, side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import SourceError
from unloader.model import Extract, Projection, ReadColumn, ValueOptions
from unloader.request.names import matching_any
from unloader.sources.readings import ColumnReadings, Reading, Use, schema_message
from writers.schema import read_schema, schema_text

if TYPE_CHECKING:
    from partition_planner.model import TableInfo
    from unloader.sources.base import Catalog
    from writers.model import TextFormat

Encodes = Callable[["TextFormat"], bool]


class OutputNeeds(Struct, frozen=True, kw_only=True):
    """What one output needs of the columns."""

    text: TextFormat | None
    """Its dialect; None is Parquet."""
    batches_only: bool = False
    """Finished text would not do: files are cut by size, or fields have fixed widths."""
    values: frozenset[str] = frozenset()
    """Columns that are read as values where Parquet would have values, even if they are to be text:
    a transform works on them."""
    columns: tuple[str, ...] | None = None
    """Names of the columns of the output, in its order; None means all, in table order."""
    filter_columns: tuple[str, ...] | None = None
    """Names of the columns that its filter looks at; None where it has no filter."""


def project(
    catalog: Catalog,
    table: TableInfo,
    query: str | None,
    outputs: Sequence[OutputNeeds],
    *,
    as_text: Sequence[str] = (),
    values: ValueOptions | None = None,
) -> Projection:
    """Return the projection of a table or query for some outputs, from the source's readings.

    Raises:
        SourceError: A column cannot be read exactly, or an added one has another's name.
    """
    readings = catalog.readings(table, query, values or ValueOptions())
    return choose(readings, outputs, as_text=as_text, encodes=catalog.encodes)


def choose(
    columns: Sequence[ColumnReadings],
    outputs: Sequence[OutputNeeds],
    *,
    as_text: Sequence[str] = (),
    encodes: Encodes = lambda text: False,
) -> Projection:
    """Return one set of columns that serves all outputs, and which of them each output takes.

    Only the columns that an output takes or its filter uses are read. The filter has the values
    as they would be in Parquet, for every kind of output. The database renders the text itself if
    there is one output and it is text that the database can render.

    Args:
        as_text: Globs of the columns to be written as exact text.
        encodes: Returns whether the database can render a dialect to the byte.

    Raises:
        SourceError: No reading of a column serves an output, or an added one has another's name.
    """
    output, text = outputs[0], outputs[0].text
    encoded = (
        len(outputs) == 1
        and text is not None
        and not (output.batches_only or text.guard_formulas or output.filter_columns is not None)
        # The server does not enclose an empty text, so its record would be an empty line.
        and not (text.null and len(_of_names(columns, output.columns)) == 1)
        and encodes(text)
    )
    return _chosen_once(tuple(columns), tuple(outputs), tuple(as_text), encoded)


@lru_cache(maxsize=256)  # Tables of a schema have columns in common.
def _chosen_once(
    columns: tuple[ColumnReadings, ...],
    outputs: tuple[OutputNeeds, ...],
    as_text: tuple[str, ...],
    encoded: bool,
) -> Projection:
    """Return the result of `choose`; `encoded` is true if the database renders the output."""
    scan: list[tuple[ReadColumn, Reading]] = []
    places: dict[tuple[ReadColumn, tuple[tuple[str, str], ...]], int] = {}
    """By the column without its note, and the metadata of its field."""

    def place(column: ColumnReadings, reading: Reading) -> int:
        """Return the index of a reading in the scan; add the reading if it is missing."""
        plain = ReadColumn(
            name=column.name,
            source_type=column.source_type,
            expression=reading.expression,
            output_type=reading.output_type,
            nullable=column.nullable,
            lossless=reading.lossless,
            note="",
        )
        at = places.setdefault((plain, reading.metadata), len(scan))
        if at == len(scan):
            scan.append((replace(plain, note=reading.note) if reading.note else plain, reading))
        elif reading.note and not scan[at][0].note:
            scan[at] = (replace(plain, note=reading.note), scan[at][1])
        return at

    taken = tuple(
        tuple(place(*each) for each in _chosen(columns, output, as_text, encoded=encoded))
        for output in outputs
    )
    own = [column for column in columns if not column.beside]
    filters: list[tuple[int, ...]] = []
    for output in outputs:
        # A filter has the values as they would be in Parquet.
        typed = OutputNeeds(text=None, columns=output.filter_columns or ())
        filters.append(tuple(place(*each) for each in _chosen(own, typed, (), encoded=False)))
    has_filters = any(output.filter_columns is not None for output in outputs)
    return Projection(
        columns=tuple(read for read, _ in scan),
        route="encoded" if encoded else "arrow",
        schema="" if encoded else schema_message([(read.name, how) for read, how in scan]),
        outputs=taken,
        filters=tuple(filters) if has_filters else None,
    )


def _chosen(
    columns: Sequence[ColumnReadings],
    output: OutputNeeds,
    as_text: Sequence[str],
    *,
    encoded: bool,
) -> list[tuple[ColumnReadings, Reading]]:
    found = []
    texts = matching_any([column.beside or column.name for column in columns], as_text)
    for column in _of_names(columns, output.columns):
        text = output.text
        use: Use = "parquet" if text is None else "encoded" if encoded else "text"
        if text is not None and not encoded:
            masks = {
                None: None,
                "date": text.date_format,
                "timestamp": text.timestamp_format,
                "timestamp_tz": text.timestamp_tz_format,
            }
            use = "text" if masks[column.mask] is None else "masked"
        asked = (column.beside or column.name) in texts
        reading = _first(column.readings, use, output, asked=asked)
        if column.name in output.values and not column.beside:
            value = _first(column.readings, "parquet", output, asked=asked)
            if reading is None or reading.output_type == "string":
                reading = value or reading
        if reading is not None:
            found.append((column, reading))
        elif not column.beside:
            raise SourceError(
                f"column {column.name} has the type {column.source_type}, which cannot be read "
                f"exactly for {'Parquet' if output.text is None else 'text'}",
                f"leave it out with --exclude {column.name}",
            )
    counted = Counter(column.name for column, _ in found)
    for column, _ in found:
        if column.beside and counted[column.name] > 1:
            raise SourceError(
                f"the column {column.name} already exists, and {column.added_by} would add another",
                f"leave one of them out with --exclude {column.name}, or run without "
                f"{column.added_by}",
            )
    return found


def _of_names(
    columns: Sequence[ColumnReadings], names: Sequence[str] | None
) -> Sequence[ColumnReadings]:
    """Return the columns of these names in their order, each with its accompanying columns."""
    if names is None:
        return columns
    return [
        column for name in names for column in columns if (column.beside or column.name) == name
    ]


def _first(
    readings: Sequence[Reading], use: Use, output: OutputNeeds, *, asked: bool
) -> Reading | None:
    for reading in readings:
        text = output.text
        forms = set() if text is None else {text.boolean, text.binary}
        if (
            use in reading.serves
            and reading.as_text in (None, asked)
            and (not reading.forms or reading.forms & forms)
        ):
            return reading
    return None


def with_origin(extract: Extract) -> Extract:
    """Return an extract whose schema has the source's kind, and the table or query, as metadata.

    A Parquet file records it. Files of two runs over the same rows are equal byte by byte, so
    neither the run nor its snapshot is among it; the manifest has both.
    """
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
