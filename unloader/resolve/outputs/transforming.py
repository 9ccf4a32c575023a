"""What a transform makes of the columns that are read: checked before the first row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import UsageError
from unloader.model import Lossless, Projection, ReadColumn
from unloader.transforms.model import Masked, MaskingKey, OutputColumn, TransformOptions
from writers.model import ParquetFormat, TextFormat

if TYPE_CHECKING:
    from unloader.sources.projection import OutputNeeds

Project = Callable[["OutputNeeds"], Projection]
"""From what an output needs to the columns that are read for it."""

_UNORDERED = ("hmac", "tokenize", "ff1")
"""Masks whose values are in another order than those that they are made of."""


class ResolvedTransform(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The transform of one output, with nothing left to be decided. It holds no key."""

    options: TransformOptions
    """What is done; its keys have their proofs."""
    written: Projection
    """The columns that are written."""
    columns: tuple[OutputColumn, ...]
    """The same, each with where it comes from and how it is masked."""

    @property
    def declared(self) -> Projection:
        """The columns that are written, with the source's types where they still say something."""
        known = zip(self.written.columns, self.columns, strict=True)
        return replace(
            self.written,
            columns=tuple(
                replace(read, source_type="") if column.changes or column.masked else read
                for read, column in known
            ),
        )


def columns_as_values(
    options: TransformOptions, needs: OutputNeeds, project: Project, names: Iterable[str]
) -> frozenset[str]:
    """Return the columns that are read as values, even where the output is text.

    They are those that a step looks at: a date is a date in every format. The others are read as
    they would be without the transform.

    Args:
        options: The transform.
        needs: What the output needs without it.
        project: Returns the columns that are read for some needs.
        names: Of all columns.

    Raises:
        UsageError: As `resolved_transform`; or a step looks at a column that is written as it is,
            and its value would lose what its text has.
        SourceError: A column cannot be read exactly.
        ConfigError: A library is missing.
    """
    from unloader.transforms.transformer import check
    from writers.schema import read_schema

    plain, values = project(needs), project(replace(needs, values=frozenset(names)))
    if values == plain:
        return frozenset()
    found = check(options.transform, read_schema(values.schema))
    for text, value in zip(plain.columns, values.columns, strict=True):
        if text.name in found.looked_at and text.lossless and not value.lossless:
            _check_changed(text.name, found.columns)
    return found.looked_at


def with_key_places(options: TransformOptions, keys: Iterable[MaskingKey]) -> TransformOptions:
    """Return a transform with other places of its keys, by their names; proofs stay."""
    now = {key.name: key for key in keys}
    return replace(
        options,
        keys=tuple(
            replace(now[key.name], proof=key.proof) if key.name in now else key
            for key in options.keys
        ),
    )


def has_same_keys(had: TransformOptions, asked: TransformOptions) -> bool:
    """Return whether the keys of a request are those of a run, whose proofs are known.

    Raises:
        ConfigError: One is not there, or is none.
    """
    from unloader.secrets.secret_places import is_proof_of
    from unloader.transforms.masking_keys import masking_keys

    now = masking_keys(asked.keys)
    return all(is_proof_of(now.get(key.name, b""), key.proof) for key in had.keys)


def resolved_transform(options: TransformOptions, read: Projection) -> ResolvedTransform:
    """Return a transform checked against the columns that are read.

    Raises:
        UsageError: A step names no column, or several, or does not suit its type; an expression is
            none, or has in it what it may not.
        ConfigError: A key is not there or is none for its mask, or a library is missing.
    """
    from unloader.transforms.masking_keys import masking_keys, with_proof
    from unloader.transforms.transformer import Transformer, check
    from writers.schema import read_schema, schema_text

    keys = tuple(map(with_proof, options.keys))
    schema = read_schema(read.schema)
    found = check(options.transform, schema, keys)
    # With the keys: one of a wrong size for its mask is known now.
    Transformer(options.transform, schema, masking_keys(options.keys)).close()
    sources: dict[str, ReadColumn] = {column.name: column for column in read.columns}
    return ResolvedTransform(
        options=replace(options, keys=keys),
        written=Projection(
            columns=tuple(_written(column, sources) for column in found.columns),
            route="arrow",
            schema=schema_text(found.schema),
        ),
        columns=found.columns,
    )


def check_order(shape: TextFormat | ParquetFormat, transform: ResolvedTransform) -> None:
    """Check that no order is declared that a mask has undone.

    Only the first column counts: whether rows are in the order of a further one follows from them.

    Raises:
        UsageError: The rows would be in the order of values that are hashed or encrypted.
    """
    order = shape.sorted_by if isinstance(shape, ParquetFormat) else ()
    for column in transform.columns if order else ():
        if column.name == order[0].name and column.masked and column.masked.method in _UNORDERED:
            raise UsageError(
                f"--sorted-by {column.name}: the column is masked by {column.masked.method}, and "
                "masked values have no order",
                "leave --sorted-by out, or put a column that is not masked first",
            )


def _check_changed(name: str, columns: Sequence[OutputColumn]) -> None:
    """Refuse to write a value in the place of a text that says more, where no step asks for it."""
    for column in columns:
        if name in column.inputs and column.masked is None and not column.changes:
            raise UsageError(
                f"an expression or a mask reads column {name}, which is written unchanged; its "
                "text would lose everything except the value",
                "leave the column out with --output-columns",
            )


def _written(column: OutputColumn, sources: dict[str, ReadColumn]) -> ReadColumn:
    """Return a column that is written as a manifest and a plan tell of it."""
    own = sources.get(column.source)
    same = column.masked is None and not column.changes
    return ReadColumn(
        name=column.name,
        source_type="" if own is None else own.source_type,
        expression="",
        output_type=column.output_type,
        nullable=own.nullable if own is not None and same else None,
        lossless=_lossless(column, [sources[name] for name in column.inputs]),
        note="; ".join(_notes(column, own)),
    )


def _lossless(column: OutputColumn, inputs: Sequence[ReadColumn]) -> Lossless:
    if column.masked is not None:
        return "masked"
    if not column.source:
        return "changed"
    return all(each.lossless for each in inputs)


def _notes(column: OutputColumn, own: ReadColumn | None) -> Iterator[str]:
    if own is not None and own.note and column.masked is None:
        yield own.note
    if own is not None and own.name != column.name:
        yield f"{own.name} in the source"
    for change in column.changes:
        computed = change == "computed" and column.inputs
        yield f"computed from {', '.join(column.inputs)}" if computed else change
    if column.masked is not None:
        yield _masked_words(column.masked)
    if column.unmasked_inputs:
        yield f"has clear values of {', '.join(column.unmasked_inputs)}"


def _masked_words(masked: Masked) -> str:
    if masked.method == "derived":
        return "derived from masked values"
    key = f", key {masked.key_name}" if masked.key_name else ""
    return f"masked by {masked.method} ({masked.detail}{key})"
