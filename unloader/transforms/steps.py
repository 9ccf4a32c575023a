"""From a step and the columns that it finds to the columns that it leaves, and how rows follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import UsageError
from unloader.transforms.columns import found, known
from unloader.transforms.model import (
    CastColumn,
    ConstantColumn,
    DropColumns,
    KeepColumns,
    Masked,
    RenameColumns,
)
from unloader.transforms.types import column_type, exact_cast, value_of

Arrays = list[pa.Array | pa.ChunkedArray]
"""Columns that no step has touched may be in pieces."""
Work = Callable[[Arrays, int], Arrays]
"""From the columns and the number of rows to the columns; never changes the list it is given."""


class Column(Struct, frozen=True, kw_only=True):
    """A column between two steps."""

    field: pa.Field
    inputs: tuple[str, ...]
    """The columns that went in and that it depends on."""
    clear: frozenset[str]
    """Those of them that it has unmasked values of."""
    source: str = ""
    """The column that went in and that this one is, changed or not; empty for a new one."""
    changes: tuple[str, ...] = ()
    masked: Masked | None = None
    origin: int | None = None
    """The place of the input column that it is, unchanged; None where something was done to it."""

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.field.name)


Columns = tuple[Column, ...]


def names_of(columns: Columns) -> tuple[str, ...]:
    """Return the names of columns."""
    return tuple(column.name for column in columns)


def schema_of(columns: Columns) -> pa.Schema:
    """Return the schema of columns."""
    return pa.schema([column.field for column in columns])


def plain_array(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values of an array that may be in pieces, or a dictionary."""
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def plain_field(field: pa.Field) -> pa.Field:
    """Return a field with the type of its values."""
    kind = field.type
    return field.with_type(kind.value_type) if pa.types.is_dictionary(kind) else field


def kept(step: KeepColumns, columns: Columns) -> tuple[Columns, Work]:
    """Keep some columns."""
    indexes = [found(names_of(columns), name, "keep") for name in step.keep]
    if not indexes or len(set(indexes)) < len(indexes):
        raise UsageError("keep names a column twice, or names no column", "name each column once")
    return tuple(columns[index] for index in indexes), _taking(indexes)


def dropped(step: DropColumns, columns: Columns) -> tuple[Columns, Work]:
    """Leave some columns out."""
    gone = {found(names_of(columns), name, "drop") for name in step.drop}
    indexes = [index for index in range(len(columns)) if index not in gone]
    if not indexes:
        raise UsageError("drop leaves no column", "keep at least one")
    return tuple(columns[index] for index in indexes), _taking(indexes)


def renamed(step: RenameColumns, columns: Columns) -> tuple[Columns, Work]:
    """Give columns other names."""
    names = names_of(columns)
    indexes = [found(names, name, "rename") for name, _ in step.rename]
    if len(set(indexes)) < len(indexes):
        raise UsageError("rename names a column twice", "name each column once")
    after = list(columns)
    for index, (_, to) in zip(indexes, step.rename, strict=True):
        if not to:
            raise UsageError("rename gives an empty name", "give an unused name")
        after[index] = replace(columns[index], field=columns[index].field.with_name(to))
    for name in {to for _, to in step.rename}:
        if names_of(tuple(after)).count(name) > 1:
            raise UsageError(
                f"rename would give two columns the name {name!r}",
                "give an unused name",
            )
    return tuple(after), lambda arrays, _: arrays


def cast(step: CastColumn, columns: Columns) -> tuple[Columns, Work]:
    """Give a column another type."""
    index = found(names_of(columns), step.cast, "cast")
    column = columns[index]
    kind = column_type(step.to)
    function = exact_cast(column.field, kind)
    changed = replace(
        column,
        field=pa.field(column.name, kind, column.field.nullable),
        changes=(*column.changes, f"cast to {kind}"),
        origin=None,
    )
    return with_column(columns, index, changed), on_one(index, function)


def constant(step: ConstantColumn, columns: Columns) -> tuple[Columns, Work]:
    """Set a column to one value."""
    kind = column_type(step.type)
    value = value_of(step.value, kind, f"constant {step.constant}")
    index, name = target(columns, step.constant, "constant")
    column = Column(field=pa.field(name, kind), inputs=(), clear=frozenset(), changes=("constant",))
    return with_column(columns, index, column), setting(
        index, lambda arrays, rows: pa.repeat(value, rows)
    )


def target(columns: Columns, name: str, what: str) -> tuple[int, str]:
    """Return the place and the name of the column that a step sets; behind the last for a new one.

    Raises:
        UsageError: The name may be several columns', or is empty.
    """
    if not name:
        raise UsageError(f"{what} names no column", "give the name of a column")
    index = known(names_of(columns), name, what)
    return (len(columns), name) if index is None else (index, columns[index].name)


def with_column(columns: Columns, index: int, column: Column) -> Columns:
    """Return columns with one in its place, or behind the last."""
    return (*columns[:index], column, *columns[index + 1 :])


def on_one(index: int, function: Callable[[pa.Array], pa.Array]) -> Work:
    """Return the work that changes one column by itself."""
    return setting(index, lambda arrays, _: function(plain_array(arrays[index])))


def setting(index: int, made: Callable[[Arrays, int], pa.Array]) -> Work:
    """Return the work that sets one column."""

    def work(arrays: Arrays, rows: int) -> Arrays:
        return [*arrays[:index], made(arrays, rows), *arrays[index + 1 :]]

    return work


def _taking(indexes: Sequence[int]) -> Work:
    return lambda arrays, _: [arrays[index] for index in indexes]
