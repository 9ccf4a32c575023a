"""Checksums of the values in files held against those of the values that were fetched.

A part is what the two are known of alike: a work unit, or the table where all units share a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from unloader.nouns import counted
from writers.model import ContentSums, ParquetFormat, TextFormat


class Fetched(Struct, frozen=True, kw_only=True):
    """What was fetched, as far as files can be compared with it."""

    schema: str
    """Of the columns that were written, as an Arrow IPC message."""
    columns: tuple[str, ...]
    """Their names."""
    parts: Mapping[str, ContentSums]
    """By what a part is called in messages."""
    left_out: Mapping[int, str] = field(default_factory=dict)
    """Columns whose values the files do not show in full, by index, each with why."""

    def not_compared(self) -> tuple[str, ...]:
        """Return the names of the columns that are left out, each with why."""
        return tuple(f"{self.columns[at]}: {why}" for at, why in self.left_out.items())

    def notice(self) -> str:
        """Return the same in one line; empty if all columns are compared."""
        known = "; ".join(self.not_compared())
        return known and f"columns whose values the files do not show in full: {known}"


def fetched_of(
    schema: str,
    columns: tuple[str, ...],
    parts: Mapping[str, ContentSums],
    format: TextFormat | ParquetFormat,
) -> Fetched:
    """Return what files in a format are compared with; the arguments are those of `Fetched`."""
    from writers.content.reading import not_compared

    left_out = not_compared(schema, format)
    return Fetched(schema=schema, columns=columns, parts=parts, left_out=left_out)


def differing(
    one: ContentSums,
    other: ContentSums,
    columns: Sequence[str],
    where: tuple[str, str],
    left_out: Mapping[int, str],
) -> Iterator[str]:
    """Yield how two checksums of the same rows differ, column by column.

    Args:
        one: Of the rows in one place.
        other: Of those in another.
        columns: Names.
        where: What the places are called.
        left_out: Columns not to be compared, by index.
    """
    if one.rows != other.rows:
        yield f"{counted(one.rows, 'row')} {where[0]}, {other.rows} {where[1]}"
        return
    for index, name in enumerate(columns):
        if index in left_out:
            continue
        if one.nulls[index] != other.nulls[index]:
            yield (
                f"column {name} has {one.nulls[index]} NULLs {where[0]}, "
                f"{other.nulls[index]} {where[1]}"
            )
        elif one.sums[index] != other.sums[index]:
            yield (
                f"column {name} has the checksum {one.sums[index]} {where[0]}, "
                f"{other.sums[index]} {where[1]}"
            )
