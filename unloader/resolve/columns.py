"""The columns of a scan, and what each output makes of them: format, transform, fixed widths.

One scan reads the columns of all outputs of a table. Everything is checked against the types of the
columns before the first row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from partition_planner.model import KeySample, TableInfo
from unloader.errors import PlanFailed, UsageError
from unloader.model import (
    COMPARING,
    Lossless,
    OutputOptions,
    Projection,
    ReadColumn,
    Request,
    Widths,
)
from unloader.request.name_templates import lob_template_parts
from unloader.request.names import Folding, choose_columns, means_a_column, one_column
from unloader.resolve.resolved import ResolvedOutput, marked, projection_of_output
from unloader.secrets.keys import masking_keys, with_proof
from unloader.sources.base import Catalog
from unloader.sources.questions import project
from unloader.sources.readings import Declared, OutputNeeds
from unloader.sources.registry import source_of
from unloader.transforms.model import OutputColumn, TransformOptions
from writers.errors import FormatError
from writers.model import Compression, FixedField, ParquetFormat, TextFormat
from writers.schema import read_schema, schema_text, selected, text_class
from writers.text.dialects import OutputEncoding
from writers.text.dialects import check as check_dialect

if TYPE_CHECKING:
    from unloader.transforms.sql_steps import Expression


_FILTER = "the filter"


def columns_of(
    request: Request, catalog: Catalog, table: TableInfo
) -> tuple[Projection, tuple[ResolvedOutput, ...]]:
    """Return the columns of the scan, and the outputs with their formats and transforms.

    The outputs have the places of the request. A codec that is measured later is still "none".
    Raises SourceError if a column cannot be read exactly, UsageError if a format, a filter or a
    transform does not fit the columns, and ConfigError if the key of a mask is missing.
    """
    selection, folding = request.selection, catalog.capabilities.folding
    names = [column.name for column in table.columns]

    texts, values = selection.as_text, request.values
    projected = partial(project, catalog, table, selection.query, as_text=texts, values=values)

    def checked_filter(condition: str, typed: Any = None) -> Expression:
        from unloader.transforms.sql_steps import check_condition, checked, open_session

        with closing(open_session()) as session:
            found = checked(session, condition, typed.names if typed else names, _FILTER)
            if typed is not None:
                check_condition(session, found, typed, _FILTER)
            return found

    asked = request.of_outputs()
    needs = []
    for each in asked:
        output = each.output
        need = OutputNeeds(
            text=output.format if isinstance(output.format, TextFormat) else None,
            # Text that the database has finished holds no values that could be hashed.
            batches_only=(
                each.verify in COMPARING
                or output.transform is not None
                or output.lob_files != ()
                or output.file_size_bytes != 0
                or each.fixed is not None
            ),
        )
        if request.routes is not None:
            own = each.selection
            if own.columns or own.exclude:
                taken = choose_columns(names, own.columns, own.exclude, folding)
                need = replace(need, columns=tuple(taken))
            if output.filter is not None:
                used = checked_filter(output.filter).columns
                filtered = dict.fromkeys(names[index] for index in used)
                need = replace(need, filter_columns=tuple(filtered))
        packed: frozenset[str] = frozenset()
        if output.lob_files:
            # A transform may give a column its name.
            named = [each for each in output.lob_files if means_a_column(names, each, folding)]
            packed = frozenset(one_column(names, name, folding) for name in named)
            need = replace(need, values=packed, lobs=packed)
        if each.output.transform is not None:
            looked_at = _columns_as_values(each.output.transform, need, projected, names)
            need = replace(need, values=looked_at | packed)
        needs.append(need)
    read = projected(needs)
    for each, columns in zip(asked, read.filters or (), strict=False):
        if each.output.filter is not None:
            # Now the types of the columns are known.
            checked_filter(each.output.filter, selected(read_schema(read.schema), columns))
    outputs = []
    for number, each in enumerate(asked):
        options, own_columns = each.output, read
        transformed: Projection | None = None
        origins: tuple[OutputColumn, ...] = ()
        if len(read.outputs) > 1 or read.filters:
            own_columns = projection_of_output(read, number)
        if options.transform is not None:
            steps, transformed, origins = _transformed(options.transform, own_columns)
            options = replace(options, transform=steps)
            # Changed values have no type of the source.
            known = tuple(
                replace(column, source_type="") if how.changes or how.masked else column
                for column, how in zip(transformed.columns, origins, strict=True)
            )
            own_columns = replace(transformed, columns=known)
        own_names = [column.name for column in own_columns.columns]
        lobs = tuple(one_column(own_names, name, folding) for name in options.lob_files)
        lob_name: tuple[str, ...] | None = None
        if lobs:
            own_columns, lob_name = _places(options, own_columns, lobs, folding)
            transformed = own_columns
        shape = _format_of(each, own_columns, catalog)
        if transformed is not None:
            _check_order(shape, origins, lobs)
            transformed = marked(transformed, shape)
        codec = options.compression
        outputs.append(
            ResolvedOutput(
                options=options,
                format=shape,
                compression=codec if isinstance(codec, Compression) else Compression(),
                choice=None,
                transformed=transformed,
                origins=origins,
                lobs=lobs,
                lob_name=lob_name,
            )
        )
    if request.routes is None and outputs[0].transformed is None:
        read = marked(read, outputs[0].format)
    return _shared(read), tuple(outputs)


@lru_cache(maxsize=256)
def _shared(projection: Projection) -> Projection:
    """Return one object for all equal ones of many tables: its schema is made only once."""
    return projection


def _format_of(
    request: Request, projection: Projection, catalog: Catalog
) -> TextFormat | ParquetFormat:
    """Return the format with its fields, and with names of columns as the database writes them."""
    shape, folding = request.output.format, catalog.capabilities.folding
    if isinstance(shape, TextFormat):
        if request.fixed is None:
            return shape
        declared = source_of(request.source.kind).declared
        fields = fixed_fields(projection, shape, request.fixed, declared=declared, folding=folding)
        shape = replace(shape, fixed=fields)
        try:
            check_dialect(shape)
        except FormatError as error:
            # Such as a --width that no number of characters fills.
            raise UsageError(error.message, error.hint) from error
        return shape
    names = [column.name for column in projection.columns]
    blooms = tuple(one_column(names, name, folding) for name in shape.bloom_filters)
    order = tuple(
        replace(column, name=one_column(names, column.name, folding)) for column in shape.sorted_by
    )
    sorted_names = tuple(column.name for column in order)
    for option, named in (("--bloom-filter", blooms), ("--sorted-by", sorted_names)):
        for at, name in enumerate(named):
            if name in named[:at]:
                raise UsageError(f"{option} names {name!r} twice", "name each column once")
    return replace(shape, bloom_filters=blooms, sorted_by=order)


def _columns_as_values(
    options: TransformOptions,
    needs: OutputNeeds,
    projected: Callable[[Sequence[OutputNeeds]], Projection],
    names: Iterable[str],
) -> frozenset[str]:
    """Return the columns that steps use, read as values even if the output is text.

    The others are read as without the transform.
    """
    from unloader.transforms.transformer import check

    plain = projection_of_output(projected((needs,)), 0)
    all_values = replace(needs, values=frozenset(names))
    values = projection_of_output(projected((all_values,)), 0)
    if values == plain:
        return frozenset()
    found = check(options, read_schema(values.schema))
    for text, value in zip(plain.columns, values.columns, strict=True):
        if text.name not in found.looked_at or not text.lossless or value.lossless:
            continue
        # A value in place of its exact text is only written where a step asks for the change.
        for column in found.columns:
            if text.name in column.inputs and column.masked is None and not column.changes:
                raise UsageError(
                    f"an expression or a mask reads column {text.name}, which is written "
                    "unchanged; its text would lose everything except the value",
                    "leave the column out with --output-columns",
                )
    return found.looked_at


_UNORDERED = ("hmac", "tokenize", "ff1")
"""Masks whose values are in another order than the original values."""


def _places(
    options: OutputOptions, projection: Projection, lobs: Sequence[str], folding: Folding
) -> tuple[Projection, tuple[str, ...] | None]:
    """Return the columns of an output with the places of values that go to other files.

    Also how files with one value each are named, None for packed files.
    """
    from writers.lob_files import check_keys, packed_schema  # It imports pyarrow.

    names = [column.name for column in projection.columns]
    template: list[str] | None = None
    if options.lob_layout != "packed":
        template = [*lob_template_parts(options.lob_name)]
        template[1::2] = (one_column(names, field, folding) for field in template[1::2])
    try:
        check_keys(read_schema(projection.schema), template or (), lobs)
        schema = packed_schema(read_schema(projection.schema), lobs)
    except FormatError as error:
        raise UsageError(error.message, error.hint) from error
    if twice := sorted(name for name in set(lobs) if lobs.count(name) > 1):
        raise UsageError(f"--lob-files names {twice[0]!r} twice", "name each column once")
    columns = tuple(
        replace(column, output_type="string", note="; ".join(filter(None, (column.note, _PLACE))))
        if column.name in lobs
        else column
        for column in projection.columns
    )
    places = replace(projection, columns=columns, schema=schema_text(schema))
    return places, None if template is None else tuple(template)


_PLACE = "the place of the value in another file"


def _check_order(
    shape: TextFormat | ParquetFormat, origins: Sequence[OutputColumn], lobs: Sequence[str]
) -> None:
    """Refuse a declared order of hashed or encrypted values; only its first column counts."""
    order = shape.sorted_by if isinstance(shape, ParquetFormat) else ()
    if order and order[0].name in lobs:
        raise UsageError(
            f"--sorted-by {order[0].name}: the values of the column go to packed files, and their "
            "places have another order",
            "leave --sorted-by out",
        )
    for column in origins if order else ():
        if column.name == order[0].name and column.masked and column.masked.method in _UNORDERED:
            raise UsageError(
                f"--sorted-by {column.name}: the column is masked by {column.masked.method}, and "
                "masked values have no order",
                "leave --sorted-by out, or put a column that is not masked first",
            )


def _transformed(
    options: TransformOptions, read: Projection
) -> tuple[TransformOptions, Projection, tuple[OutputColumn, ...]]:
    """Return a transform with the proofs of its keys, and the columns that it leaves of those read.

    The last value has the origin and the mask of each of these columns.
    """
    from unloader.transforms.transformer import Transformer, check

    options = replace(options, keys=tuple(map(with_proof, options.keys)))
    schema = read_schema(read.schema)
    found = check(options, schema)
    # With the keys: one of a wrong size for its mask is known now.
    Transformer(options, schema, masking_keys(options.keys)).close()
    sources = {column.name: column for column in read.columns}
    written = []
    for column in found.columns:
        own, masked, notes = sources.get(column.source), column.masked, []
        lossless: Lossless = all(sources[name].lossless for name in column.inputs)
        if masked is not None:
            lossless = "masked"
        elif not column.source:
            lossless = "changed"
        if own is not None and own.note and masked is None:
            notes.append(own.note)
        if own is not None and own.name != column.name:
            notes.append(f"{own.name} in the source")
        for change in column.changes:
            computed = change == "computed" and column.inputs
            notes.append(f"computed from {', '.join(column.inputs)}" if computed else change)
        if masked is not None and masked.method == "derived":
            notes.append("derived from masked values")
        elif masked is not None:
            key = f", key {masked.key_name}" if masked.key_name else ""
            notes.append(f"masked by {masked.method} ({masked.detail}{key})")
        if column.unmasked_inputs:
            notes.append(f"has clear values of {', '.join(column.unmasked_inputs)}")
        same = own if masked is None and not column.changes else None
        written.append(
            ReadColumn(
                name=column.name,
                source_type="" if own is None else own.source_type,
                expression="",
                output_type=column.output_type,
                nullable=None if same is None else same.nullable,
                lossless=lossless,
                note="; ".join(notes),
            )
        )
    schema_of = schema_text(found.schema)
    left = Projection(columns=tuple(written), route="arrow", schema=schema_of)
    return options, left, found.columns


def without_masked_ranges(
    table: TableInfo, catalog: Catalog, outputs: Iterable[ResolvedOutput], split: str = "auto"
) -> TableInfo:
    """Return a table without ranges whose ends are values that an output masks or leaves out."""
    clear = [
        {column.source for column in each.origins if column.masked is None}
        for each in outputs
        if each.options.transform and each.options.transform.masked_columns
    ]
    if not clear:
        return table
    shown = set.intersection(*clear)
    column = catalog.address_column(table) if table.extents else None
    samples = [table.keys, *(each.keys for each in table.partitions)]
    hidden = {keys.column for keys in samples if keys is not None} - shown
    if column is not None and column not in shown:
        hidden.add(column)
    if not hidden:
        return table
    if split == "range":
        raise PlanFailed(
            f"{table.label} can only be divided by values of column {min(hidden)}; a plan may "
            "not show these values, because the column is masked or not written",
            "run with --split auto",
        )

    def kept(keys: KeySample | None) -> KeySample | None:
        return keys if keys is not None and keys.column in shown else None

    return replace(
        table,
        extents=() if column in hidden else table.extents,
        keys=kept(table.keys),
        partitions=tuple(replace(each, keys=kept(each.keys)) for each in table.partitions),
    )


def fixed_fields(
    projection: Projection,
    text: TextFormat,
    widths: Widths,
    *,
    declared: Callable[[str], Declared],
    folding: Folding,
) -> tuple[FixedField, ...]:
    """Return the field of each column, in order and without gaps; UsageError for an unknown width.

    NULL's text has room in every field whose width is not given.
    """
    from writers.text.text_values import content_of_field

    given: dict[str, int] = {}
    names = [column.name for column in projection.columns]
    for wanted, width in widths:
        name = one_column(names, wanted, folding)
        if name in given:
            raise UsageError(f"--width names {name!r} twice", "name each column once")
        given[name] = width
    schema = read_schema(projection.schema)
    fields: list[FixedField] = []
    unknown: list[str] = []
    start = 0
    for column, arrow in zip(projection.columns, schema, strict=True):
        # The type that a domain is based on is in the metadata of its field.
        base_type = (arrow.metadata or {}).get(b"base_type", b"").decode()
        length = declared(" ".join((base_type or column.source_type).upper().split()))
        bytes_of_field = given.get(column.name) or _known_width(arrow, length, text)
        if bytes_of_field is None:
            unknown.append(column.name)
            continue
        right = content_of_field(arrow) == "number"
        fields.append(
            FixedField(start=start, width=bytes_of_field, right=right, padded=length.padded)
        )
        start += bytes_of_field
    if unknown:
        raise UsageError(
            f"--fixed has no width for {', '.join(unknown)}: the type does not limit the length "
            "of the values",
            f"give --width {unknown[0]}=BYTES and one --width for each other column, or leave "
            "the columns out with --exclude",
        )
    return tuple(fields)


def _known_width(field: Any, declared: Declared, text: TextFormat) -> int | None:
    """Return the bytes of the longest value, or of NULL's text where that is longer."""
    # It loads the encoders of text, which only workers need otherwise.
    from writers.text.fixed_width import (
        binary_text,
        decimal_text,
        longest_text,
        moment_text,
        most_bytes_of_characters,
        most_bytes_of_utf8,
        timestamp_text,
    )

    def bytes_of(sample: str) -> int:
        return len(OutputEncoding(text.encoding).encode(sample))

    kind, carried = str(field.type), text_class(field)
    longest: str | None = None
    width = None
    if carried == "number" and declared.digits is not None:
        longest = decimal_text(*declared.digits, text.decimal_separator)
    elif carried == "timestamp":
        zone = None if declared.zone is None else "" if declared.zone == "region" else "offset"
        longest = timestamp_text(text, digits=declared.second_digits, zone=zone)
    elif carried == "moment":
        longest = moment_text(zoned=declared.zone is not None, dated=declared.dated)
    elif kind == "string" and not carried and declared.utf8_bytes is not None:
        width = most_bytes_of_utf8(text.encoding, declared.utf8_bytes)
    elif kind == "string" and not carried and declared.characters is not None:
        width = most_bytes_of_characters(text.encoding, declared.characters)
    elif kind == "binary" and declared.binary_bytes is not None:
        longest = binary_text(declared.binary_bytes, text.binary)
    elif kind == "string":
        longest = declared.longest or None
    else:
        longest = longest_text(field, text)
    if longest is not None:
        width = bytes_of(longest)
    return None if width is None else max(width, bytes_of(text.null), bytes_of(" "))
