"""Checksums that the database computes, held against those of the values that were fetched.

The rows do not move: each work unit is one statement that returns one row.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from unloader.errors import UsageError
from unloader.events import Observer, Verified
from unloader.model import Extract
from unloader.sources.base import Catalog
from unloader.sources.hashing import Hasher, HashingCatalog
from unloader.verification.content import differing
from unloader.verification.parallel import Advance, in_parallel
from writers.content.sums import total
from writers.model import ContentSums

if TYPE_CHECKING:
    from partition_planner.model import Selector


class SourcePart(Struct, frozen=True, kw_only=True):
    """Some rows of the source, and what is known of them."""

    label: str
    selectors: tuple[Selector, ...]
    fetched: ContentSums


class Asking(Struct, frozen=True, kw_only=True):
    """How a source is asked."""

    catalog: Catalog
    """Holds the snapshot."""
    extract: Extract
    parallelism: int
    """Sessions."""
    observe: Observer
    check: Callable[[], None] = lambda: None
    """Called several times a second; what it raises ends all."""
    hashers: Hashers | None = None
    """Sessions that stay open for other tables; None opens some for this one."""


def check_able(catalog: Catalog, kind: str) -> None:
    """Make sure that a source can compute checksums.

    Raises:
        UsageError: It cannot.
    """
    if not catalog.capabilities.hashes:
        raise UsageError(
            f"{kind} has no SQL that computes the checksums of --verify source",
            "use --verify full, which compares the files with the values that were fetched",
        )


def unhashed(asking: Asking) -> tuple[str, ...]:
    """Return the columns that the source cannot hash, each with why."""
    found = cast(HashingCatalog, asking.catalog).unhashed(asking.extract)
    columns = asking.extract.projection.columns
    return tuple(f"{columns[at].name}: {why}" for at, why in found.items())


def source_differences(parts: Sequence[SourcePart], asking: Asking) -> list[str]:
    """Return where the source has other values than were fetched, part by part.

    Raises:
        SourceError: The database refused, or the snapshot is gone.
    """
    left_out = cast(HashingCatalog, asking.catalog).unhashed(asking.extract)
    columns = tuple(column.name for column in asking.extract.projection.columns)
    found = source_sums([part.selectors for part in parts], asking)
    return [
        text
        for part, known in zip(parts, found, strict=True)
        for text in _differing(part, known, columns, left_out)
    ]


def source_sums(groups: Sequence[tuple[Selector, ...]], asking: Asking) -> list[ContentSums]:
    """Return the checksums of the rows of each group of selectors, in their order.

    Raises:
        SourceError: As `source_differences`.
    """

    def watch(done: int, amount: int) -> None:
        asking.check()
        asking.observe(Verified(done=done, of=len(groups), what="units"))

    with ExitStack() as held:
        hashers = asking.hashers or held.enter_context(closing(Hashers(asking.catalog)))
        jobs = [partial(hashers.sums, asking.extract, selectors) for selectors in groups]
        return in_parallel(jobs, asking.parallelism, watch, hashers.cancel)


class Hashers:
    """Sessions of one snapshot, opened when a thread has none to take; a unit has one to itself."""

    def __init__(self, catalog: Catalog) -> None:
        """Open none yet.

        Args:
            catalog: Holds the snapshot.
        """
        self._catalog = catalog
        self._all: list[Hasher] = []
        self._free: queue.SimpleQueue[Hasher] = queue.SimpleQueue()

    def sums(
        self, extract: Extract, selectors: tuple[Selector, ...], advance: Advance
    ) -> ContentSums:
        """Return the checksums of some rows; called in several threads."""
        advance(0)
        hasher = self._taken(extract)
        found = []
        for selector in selectors:
            advance(0)
            found.append(hasher.sums(extract, selector))
        self._free.put(hasher)
        return total(found)

    def cancel(self) -> None:
        """Cancel what the sessions are doing."""
        for hasher in self._all:
            hasher.cancel()

    def close(self) -> None:
        """Close all sessions."""
        with ExitStack() as held:
            for hasher in self._all:
                held.enter_context(closing(hasher))

    def _taken(self, extract: Extract) -> Hasher:
        try:
            return self._free.get_nowait()
        except queue.Empty:
            opened = cast(HashingCatalog, self._catalog).open_hasher(extract)
            self._all.append(opened)
            return opened


def _differing(
    part: SourcePart,
    known: ContentSums,
    columns: tuple[str, ...],
    left_out: Mapping[int, str],
) -> list[str]:
    places = ("in the source", "fetched")
    return [
        f"{part.label}: {text}"
        for text in differing(known, part.fetched, columns, places, left_out)
    ]
