"""Asks the source about a finished run: its rows, and checksums of its values.

The source answers at the snapshot of the run where that still exists, otherwise in its current
state. The result names the moment. The rows do not move: each work unit is one statement that
returns one row.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import KeyRange, Selector, TableInfo
from unloader.errors import SnapshotGone, SourceError, UsageError, VerifyMismatch
from unloader.events import Notice, Observer, PhaseStarted, Verified
from unloader.manifest.model import Manifest
from unloader.model import (
    Extract,
    NamePart,
    PlanOptions,
    Selection,
    Snapshot,
    SourceSpec,
    TableName,
    ValueOptions,
)
from unloader.resolve.choosing import chosen_table, with_columns
from unloader.resolve.planning import keys_of, plan_of
from unloader.selection.listing import Obstacle
from unloader.sources.base import Capabilities, Catalog
from unloader.sources.hashing import Hasher
from unloader.sources.projection import OutputNeeds, project
from unloader.sources.readings import ENCODED_TYPE
from unloader.sources.registry import source_of
from unloader.verification.files import Advance, differing, in_parallel
from unloader.worker.masked_failures import source_words_left_out
from writers.content.sums import total
from writers.model import ContentSums, TextFormat

TableKey = tuple[str, str]
"""Schema and name."""


class OpenedSource(Struct, frozen=True, kw_only=True):
    """One open source, in one state of it."""

    catalog: Catalog
    snapshot: Snapshot
    hashers: Hashers
    tables: Mapping[TableKey, TableInfo | Obstacle]
    """The named tables that are in the list of tables of the source."""

    def table(self, selection: Selection) -> TableInfo:
        """Return a table cut down to its chosen columns, or a query as a table.

        Raises:
            SourceError: The source refused.
            UsageError: It has not those columns.
        """
        name = selection.table
        if name is not None and name.schema is not None:
            found = self.tables.get((name.schema.text, name.name.text))
            if found is not None and not isinstance(found, Obstacle):
                return with_columns(found, selection, self.catalog.capabilities.folding)
        # An obstacle is then reported in the words of the database.
        return chosen_table(self.catalog, selection)


class OpenSources:
    """A source as it was at snapshots, and as it is now: each opened once; a context manager."""

    def __init__(self, observe: Observer, tables: Collection[TableKey] = ()) -> None:
        """Open nothing yet.

        Args:
            observe: Gets notices on the source as a whole.
            tables: The tables to compare; they are described together.
        """
        self._observe = observe
        self._tables = frozenset(tables)
        self._held = ExitStack()
        self._opened: dict[SourceSpec, OpenedSource] = {}
        self._refused: dict[SourceSpec, SourceError] = {}
        self._told: set[str] = set()

    def at(self, source: SourceSpec) -> OpenedSource:
        """Return an open source.

        Raises:
            SourceError: It refused, now or before.
        """
        if source in self._refused:
            raise self._refused[source]
        if source not in self._opened:
            try:
                self._opened[source] = self._open(source)
            except SourceError as error:
                self._refused[source] = error
                raise
        return self._opened[source]

    @property
    def refused(self) -> bool:
        """Whether none could be opened, neither as it was nor as it is now."""
        return not self._opened

    def tell(self, text: str) -> None:
        """Tell something of the source, once."""
        if text not in self._told:
            self._told.add(text)
            self._observe(Notice(text=text))

    def __enter__(self) -> OpenSources:
        """Return the sources."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close them."""
        self._held.close()

    def _open(self, source: SourceSpec) -> OpenedSource:
        with ExitStack() as opened:
            catalog = opened.enter_context(closing(source_of(source.kind).open_catalog(source)))
            snapshot = catalog.snapshot("snapshot")
            hashers = opened.enter_context(closing(Hashers(catalog)))
            found = OpenedSource(
                catalog=catalog,
                snapshot=snapshot,
                hashers=hashers,
                tables=self._described(catalog),
            )
            self._held.push(opened.pop_all())
        return found

    def _described(self, catalog: Catalog) -> Mapping[TableKey, TableInfo | Obstacle]:
        if not self._tables:
            return {}
        listed = [each for each in catalog.list_tables().tables if each.key in self._tables]
        wanted = [each for each in listed if each.readable]
        found = catalog.describe_tables(wanted)
        return {table.key: info for table, info in zip(wanted, found, strict=True)}


class SourcePart(Struct, frozen=True, kw_only=True):
    """Some rows of the source, and the checksums of their fetched values."""

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
    """Called several times a second; an exception ends all."""
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
            "unload with --verify full, which compares the files with the values that were fetched",
        )


def unhashed(asking: Asking) -> tuple[str, ...]:
    """Return the columns that the source cannot hash, each with why."""
    found = asking.catalog.unhashed(asking.extract)
    columns = asking.extract.projection.columns
    return tuple(f"{columns[at].name}: {why}" for at, why in found.items())


def source_differences(parts: Sequence[SourcePart], asking: Asking) -> list[str]:
    """Return where the source has other values than were fetched, part by part.

    Raises:
        SourceError: The database refused, or the snapshot is gone.
    """
    left_out = asking.catalog.unhashed(asking.extract)
    columns = tuple(column.name for column in asking.extract.projection.columns)
    found = source_sums([part.selectors for part in parts], asking)
    places = ("in the source", "fetched")
    return [
        f"{part.label}: {text}"
        for part, known in zip(parts, found, strict=True)
        for text in differing(known, part.fetched, columns, places, left_out)
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
    """Sessions of one snapshot, opened when a thread finds none free; each unit has a session
    alone."""

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
        try:
            hasher = self._free.get_nowait()
        except queue.Empty:
            hasher = self._catalog.open_hasher(extract)
            self._all.append(hasher)
        found = []
        for selector in selectors:
            advance(0)
            found.append(hasher.sums(extract, selector))
        self._free.put(hasher)
        return total(found)

    def cancel(self) -> None:
        """Cancel the statements of all sessions."""
        for hasher in self._all:
            hasher.cancel()

    def close(self) -> None:
        """Close all sessions."""
        with ExitStack() as held:
            for hasher in self._all:
                held.enter_context(closing(hasher))


class SourceContent(Struct, frozen=True, kw_only=True):
    """The checksums of all values that a run was to read, as the source computes them."""

    sums: ContentSums
    unhashed: Mapping[int, str]
    """Columns that it cannot hash, by index, each with why."""
    schema: str
    """Of the columns as they are read, as an Arrow IPC message."""
    columns: tuple[str, ...]


class SourceState(Struct, frozen=True, kw_only=True):
    """The answer of a source about a run that was read from it."""

    rows: int
    at_snapshot: bool
    """Read at the run's snapshot, not as the source is now."""
    content: SourceContent | None = None
    """Where it was asked for."""

    @property
    def when(self) -> str:
        """In words: at which point in time."""
        return "at the run's snapshot" if self.at_snapshot else "as the source is now"


class Question(Struct, frozen=True, kw_only=True):
    """What a source is asked about a finished run."""

    manifest: Manifest
    source: SourceSpec
    values: bool
    """Also for checksums of all values."""
    parallelism: int
    """Sessions that compute them."""


def ask(question: Question, sources: OpenSources, observe: Observer) -> SourceState:
    """Return the source's current answer, at the run's snapshot where that still exists.

    Args:
        question: The run, and the question about it.
        sources: The source, opened where it has to be.
        observe: Called with each event of this table.

    Raises:
        SourceError: The source refused.
        UsageError: It cannot compute the requested checksums, or the manifest does not show which
            rows the run read.
    """
    manifest, source = question.manifest, question.source
    _check_tellable(question)
    if manifest.options.enable_row_security:
        source = replace(source, session=replace(source.session, enable_row_security=True))
    was, refused = manifest.snapshot, None
    then = source_of(source.kind).at_snapshot(source, was.kind, was.value) if was else None
    if then is not None:
        try:
            return _asked(replace(question, source=then), sources, observe)
        except SourceError as error:
            if error.retryable:
                raise
            refused = error
    return _asked(replace(question, source=source), sources, observe, refused=refused)


def _check_tellable(question: Question) -> None:
    subset = question.manifest.subset
    if subset is not None and subset.units is not None and subset.selectors is None:
        raise UsageError(
            "the run took a sample of work units that are ranges of keys, and manifests do not "
            "contain values of a table",
            "verify the files alone, without SOURCE",
        )
    if question.values and subset is not None and subset.limit_rows is not None:
        raise UsageError(
            "the run read the rows that came first, and the source may return other rows now",
            "verify the files with --level full, without SOURCE",
        )


def _asked(
    question: Question,
    sources: OpenSources,
    observe: Observer,
    *,
    refused: SourceError | None = None,
) -> SourceState:
    manifest, source = question.manifest, question.source
    opened = sources.at(source)
    catalog, snapshot = opened.catalog, opened.snapshot
    if question.values:
        check_able(catalog, source.kind)
    # Without its table, the state of the source says nothing.
    extract, selectors = _extract(opened, question), _sampled(manifest)
    was = manifest.snapshot
    same = snapshot.kind != "none" and snapshot.is_same(was)
    if not same:
        why = _why_not_same(catalog.capabilities, was, refused)
        sources.tell(f"{why}, so the comparison uses the source as it is now")
    masked = any(column.masked for column in manifest.columns)
    with source_words_left_out(masked, extract.projection.columns):
        rows = (
            catalog.count(extract)
            if selectors is None
            else catalog.count_selected(extract, selectors)
        )
    content = _content(opened, question, extract, observe) if question.values else None
    return SourceState(rows=rows, at_snapshot=same, content=content)


def _why_not_same(
    capabilities: Capabilities, was: Snapshot | None, refused: SourceError | None
) -> str:
    """Return why a source is not read at the snapshot of a run.

    Args:
        capabilities: Of the source.
        was: The run's snapshot.
        refused: The source's reason not to go back to that snapshot.
    """
    if was is None or was.kind == "none":
        return "the run had no snapshot"
    if refused is None:
        return "the source has changed since the run"
    if isinstance(refused, SnapshotGone) and not capabilities.snapshot_outlives_run:
        # It is so after every run, and nothing has failed.
        return "the run's snapshot ended with the run"
    return f"the run's snapshot cannot be read any more ({refused.message})"


def _content(
    opened: OpenedSource, question: Question, extract: Extract, observe: Observer
) -> SourceContent:
    manifest, catalog = question.manifest, opened.catalog
    known = [(column.name, column.output_type) for column in manifest.columns]
    found = [(column.name, column.output_type) for column in extract.projection.columns]
    # A column whose text the database made has the type that it has now.
    same = [
        now if (name, kind) == (now[0], ENCODED_TYPE) else (name, kind)
        for (name, kind), now in zip_longest(known, found, fillvalue=("", ""))
    ]
    if same != found:
        raise VerifyMismatch(
            f"the columns of {extract.table.label} differ from the columns that the run read",
            "verify the files alone, without SOURCE",
        )
    asking = Asking(
        catalog=catalog,
        extract=extract,
        parallelism=question.parallelism,
        observe=observe,
        hashers=opened.hashers,
    )
    observe(PhaseStarted(phase="comparing"))
    sampled = _sampled(manifest)
    groups: list[tuple[Selector, ...]]
    if sampled is not None:
        groups = [(each,) for each in sampled]
    else:
        limits = PlanOptions().limits(question.parallelism)
        plan = plan_of(extract.table, Selection(partitions=extract.partitions), limits)
        groups = [unit.selectors for unit in plan.units]
    sums = source_sums(groups, asking)
    return SourceContent(
        sums=total(sums),
        unhashed=catalog.unhashed(extract),
        schema=extract.projection.schema,
        columns=tuple(column.name for column in extract.projection.columns),
    )


def _sampled(manifest: Manifest) -> tuple[Selector, ...] | None:
    """Return the extents that the units of a sample read; None if the run took no such sample."""
    found = None if manifest.subset is None else manifest.subset.selectors
    if any(isinstance(each, KeyRange) for each in found or ()):
        # Their ends are SQL, which is not taken from a file.
        raise VerifyMismatch(
            "the manifest contains ranges of keys, but a run does not write ranges of keys into it",
            "restore the manifest, or verify the files alone, without SOURCE",
        )
    return found


def _extract(opened: OpenedSource, question: Question) -> Extract:
    """Return the extract of the run, its values as it read them if they are asked for."""
    catalog = opened.catalog
    manifest, options = question.manifest, question.manifest.options
    known, name = manifest.table, None
    if known is not None:
        schema = None if known.schema is None else NamePart(text=known.schema, quoted=True)
        name = TableName(schema=schema, name=NamePart(text=known.name, quoted=True))
    selection = Selection(
        table=name,
        query=manifest.query,
        columns=options.columns if question.values else (),
        exclude=options.exclude if question.values else (),
        sample=options.sample,
        sample_by=options.sample_by,
    )
    table = opened.table(selection)
    shape = options.dialect if question.values else TextFormat()
    needs = OutputNeeds(text=shape if isinstance(shape, TextFormat) else None, batches_only=True)
    projection = project(
        catalog,
        table,
        selection.query,
        (needs,),
        as_text=options.as_text if question.values else ("*",),
        values=ValueOptions(
            number_without_precision=options.number_without_precision,
            nanoseconds="timestamp" if options.nanoseconds == "timestamp" else "string",
            zone_columns=options.zone_columns,
        )
        if question.values
        else None,
    )
    return Extract(
        source=question.source,
        snapshot=opened.snapshot,
        table=table,
        query=selection.query,
        where=options.where,
        partitions=options.partition,
        keys=keys_of(catalog, table, selection),
        limit_rows=options.limit_rows,
        projection=projection,
    )
