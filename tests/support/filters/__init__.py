"""Filters on every column of Parquet files, counted by readers and in plain Python.

A reader that skips row groups, pages or files by their statistics must find as many rows as there
are. What there is comes from the unfiltered rows, so these checks need no second description of types.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from amounts import amount

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
OPERATIONS = (*COMPARISONS, "between", "in", "is null", "is nan")


@dataclass(frozen=True, slots=True)
class Column:
    """A column or a field of a struct, and its values."""

    path: tuple[str, ...]
    type: pa.DataType
    values: tuple[tuple[Any, int], ...]
    """Each value with its number of rows; days, times and moments are integers in the type's unit."""

    @property
    def floating(self) -> bool:
        """Whether it may have NaN and two zeros."""
        return pa.types.is_floating(self.type)


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on one column."""

    column: Column
    operation: str
    literals: tuple[Any, ...]
    negated: bool

    def __str__(self) -> str:
        """Show it, with long values cut."""
        shown = ", ".join(repr(each)[:40] for each in self.literals)
        text = f"{'.'.join(self.column.path)} {self.operation} {shown}"
        return f"not ({text})" if self.negated else text


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a reader means by comparisons with NaN, zeros and NULL."""

    nan_is_greatest: bool = False
    """Else NaN is neither equal to, less nor greater than anything, itself included."""
    zeros_differ: bool = False
    in_finds_nan: bool = False
    in_differs_zeros: bool = False
    null_is_not_in: bool = False
    """NULL meets `not (x in ...)`."""


def columns_of(table: pa.Table) -> Iterator[Column]:
    """Yield the columns that filters can be on: flat ones, and the fields of structs."""
    for field in table.schema:
        array = table.column(field.name).combine_chunks()
        if pa.types.is_struct(field.type):
            for index, inner in enumerate(field.type):
                leaf = array.flatten()[index]
                yield Column((field.name, inner.name), inner.type, plain_values(leaf))
        elif not pa.types.is_nested(field.type):
            yield Column((field.name,), field.type, plain_values(array))


def plain_values(array: pa.Array) -> tuple[tuple[Any, int], ...]:
    """Return values that Python compares, with their rows; moments may be outside of Python's own."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if pa.types.is_temporal(kind):
        array = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    found: dict[Any, tuple[Any, int]] = {}
    for value in array.to_pylist():
        # Zeros are equal, and NaN does not equal itself.
        key = repr(value) if isinstance(value, float) else value
        found[key] = (value, found[key][1] + 1 if key in found else 1)
    return tuple(found.values())


def chosen(rows: pa.Table, few: int) -> list[Filter]:
    """Return filters on all columns: a few of each, three times as many where everything is tried."""
    most = amount("UNLOADER_TEST_FILTERS", few, 3 * few)
    chance = random.Random(f"{rows.num_rows} {most}")
    return [each for column in columns_of(rows) for each in filters_of(column, chance, most)]


def filters_of(column: Column, chance: random.Random, most: int) -> list[Filter]:
    """Return filters on a column, with its own values and some others; at most `count`."""
    known = [*(value for value, _ in column.values if value is not None), *_others(column)]
    there = [*{repr(value): value for value in known}.values()]
    found = []
    for negated in (False, True):
        for operation in OPERATIONS:
            if operation == "is nan" and not column.floating:
                continue
            if operation.startswith("is "):
                found.append(Filter(column, operation, (), negated))
                continue
            for value in there:
                literals: tuple[Any, ...] = (value,)
                if operation == "between":
                    literals = (value, chance.choice(there))
                if operation == "in":
                    literals = (value, chance.choice(there), chance.choice(there))
                found.append(Filter(column, operation, literals, negated))
    return found if len(found) <= most else chance.sample(found, most)


def _others(column: Column) -> list[Any]:
    """Return values that may not be in a column."""
    sample = next((value for value, _ in column.values if value is not None), None)
    if isinstance(sample, str):
        return ["", "a", "m", "\U0010ffff", "a" * 4096 + "b"]
    if isinstance(sample, bytes) and not pa.types.is_fixed_size_binary(column.type):
        return [b"", b"m", b"\xff" * 5000]
    if isinstance(sample, float):
        return [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan]
    return []


def count(each: Filter, meaning: Meaning) -> int:
    """Return how many rows meet a filter."""
    values = each.column.values
    return sum(rows for value, rows in values if _meets(each, value, meaning) is True)


def _meets(each: Filter, value: Any, meaning: Meaning) -> bool | None:
    found = _plainly_meets(each, value, meaning)
    return found if found is None or not each.negated else not found


def _plainly_meets(each: Filter, value: Any, meaning: Meaning) -> bool | None:
    operation, literals = each.operation, each.literals
    if operation == "is null":
        return value is None
    if value is None:
        return False if operation == "in" and meaning.null_is_not_in else None
    if operation == "is nan":
        return math.isnan(value)
    if operation == "between":
        return _compared(">=", value, literals[0], meaning) and _compared(
            "<=", value, literals[1], meaning
        )
    if operation == "in":
        inner = Meaning(
            nan_is_greatest=meaning.nan_is_greatest or meaning.in_finds_nan,
            zeros_differ=meaning.zeros_differ or meaning.in_differs_zeros,
        )
        return any(_compared("=", value, other, inner) for other in literals)
    return _compared(operation, value, literals[0], meaning)


def _compared(operation: str, value: Any, other: Any, meaning: Meaning) -> bool:
    if isinstance(value, float):
        if not meaning.nan_is_greatest and (math.isnan(value) or math.isnan(other)):
            return operation == "<>"
        value, other = (_place(each, meaning) for each in (value, other))
    return {
        "=": value == other,
        "<>": value != other,
        "<": value < other,
        "<=": value <= other,
        ">": value > other,
        ">=": value >= other,
    }[operation]


def _place(value: float, meaning: Meaning) -> tuple[bool, float, bool]:
    """Return what sorts as a floating-point number does, NaN after all others."""
    if math.isnan(value):
        return True, 0.0, True
    return False, value, not meaning.zeros_differ or math.copysign(1, value) > 0


def mistakes(filters: Sequence[Filter], counts: Sequence[int | str], meaning: Meaning) -> list[str]:
    """Return the filters whose counts by a reader differ from the rows."""
    return [
        f"{each}: {found} rows, and not {right}"
        for each, found in zip(filters, counts, strict=True)
        if found != (right := count(each, meaning))
    ]
