"""Samples by key: which keys are in one, and what a source has to say for it.

Whether a key is in a sample depends on the key alone: not on its table, its source or its
neighbours. So rows that refer to each other by the key are in the samples of their tables together,
and each run has the same ones. docs/subsets.md tells users the same.

A key's text is its decimal digits, without zeros that mean nothing, for a number; itself for text,
without the blanks that fill a CHAR; small letters for a UUID and for the hexadecimal digits of
bytes. A row whose key is NULL or empty has none, and is in no sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from unloader.errors import UsageError
from unloader.model import SampledKeys

if TYPE_CHECKING:
    from partition_planner.model import ColumnInfo, Plan, Selector
    from unloader.model import Extract
    from unloader.sources.base import Catalog

_DIGITS = 8
"""Hexadecimal digits of the hash that count: a share is exact to 1 in 4 billion."""


def below(share: float) -> str:
    """Return what the SHA-256 of a sampled key's text is below, as the first hexadecimal digits."""
    buckets: int = 16**_DIGITS
    return f"{max(1, int(share * buckets)):0{_DIGITS}x}"


def is_sampled(text: bytes | None, share: float) -> bool:
    """Return whether a key is in a sample.

    Args:
        text: The key's text in UTF-8.
        share: Of the sample.
    """
    return bool(text) and hashlib.sha256(text or b"").hexdigest() < below(share)


class SamplingCatalog(Protocol):
    """What a catalog has besides where `capabilities.samples` is true.

    Its readers read, and its `count` counts, only the rows of `extract.keys`, and no more than
    `extract.limit_rows` rows; a reader that of one piece.
    """

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        """Return the sample of a column's values; None if values of its type are no keys."""

    def count_selected(self, extract: Extract, selectors: Sequence[Selector]) -> int:
        """Return how many rows some selectors stand for, counted by the database.

        Raises:
            SourceError: The database refused or the snapshot is gone.
        """


def count(catalog: Catalog, extract: Extract, plan: Plan) -> int:
    """Return how many rows a run reads, counted by the database.

    The units of a sample or of a part are the only ones that say which rows these are. All else is
    counted by what was asked for, and the plan has no say in it.

    Raises:
        SourceError: The database refused or the snapshot is gone.
    """
    if plan.has_all_units:
        return catalog.count(extract)
    return cast(SamplingCatalog, catalog).count_selected(extract, plan.selectors)


def check_able(catalog: Catalog, option: str) -> None:
    """Make sure that a source can read a part of the rows.

    Raises:
        UsageError: It cannot.
    """
    if not catalog.capabilities.samples:
        raise UsageError(
            f"--{option} does not apply to this source, which cannot choose rows", "leave it out"
        )


def sampled_keys(catalog: Catalog, label: str, column: ColumnInfo, share: float) -> SampledKeys:
    """Return the sample of a column's values.

    Args:
        catalog: The source.
        label: The table, for messages.
        column: As the catalog describes it.
        share: Above 0 and below 1.

    Raises:
        UsageError: Values of the column's type are no keys.
    """
    found = cast(SamplingCatalog, catalog).sampled_keys(column, share)
    if found is None:
        raise UsageError(
            f"--sample-by {column.name}: the column of {label} has the type "
            f"{column.native_type or 'of any value'}, whose values cannot be keys",
            "give a column of whole or decimal numbers, text, UUIDs or bytes",
        )
    return found
