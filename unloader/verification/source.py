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

from partition_planner.model import KeyRange, PlanLimits, Selector, TableInfo
from unloader.errors import SnapshotGone, SourceError, UsageError, VerifyMismatch
from unloader.events import Notice, Observer, PhaseStarted, Verified
from unloader.manifest.model import Manifest
from unloader.model import (
    Extract,
    FinishedUnit,
    NamePart,
    Selection,
    Snapshot,
    SourceSpec,
    TableName,
    ValueOptions,
)
from unloader.resolve.choosing import chosen_table, with_columns
from unloader.resolve.planning import keys_of, plan_of
from unloader.resolve.resolved import ResolvedTable
from unloader.selection.listing import Obstacle
from unloader.sources.base import Catalog
from unloader.sources.questions import project
from unloader.sources.readings import ENCODED_TYPE, OutputNeeds
from unloader.sources.registry import source_of
from unloader.sources.statement import Hasher
from unloader.verification.files import TABLE, Advance, Fetched, differing, in_parallel, some_of
from unloader.worker.masked_failures import source_words_left_out
from writers.model import ContentSums, TextFormat

TableKey = tuple[str, str]
"""Schema and name."""


class OpenedSource(Struct, frozen=True, kw_only=True):
    catalog: Catalog
    snapshot: Snapshot
    hashers: Hashers
    tables: Mapping[TableKey, TableInfo | Obstacle]
    """The named tables that are in the list of tables of the source."""


class OpenSources:
    """A source as it was at snapshots, and as it is now: each opened once."""

    def __init__(self, observe: Observer, tables: Collection[TableKey] = ()) -> None:
        """Open nothing yet; `tables` are compared, and so described together."""
        self._observe = observe
        self._tables = frozenset(tables)
        self._held = ExitStack()
        self._known: dict[SourceSpec, OpenedSource | SourceError] = {}
        self._told: set[str] = set()

    def at(self, source: SourceSpec) -> OpenedSource:
        """Return an open source; a source that refused once is not asked again."""
        if source not in self._known:
            try:
                self._known[source] = self._opened(source)
            except SourceError as error:
                self._known[source] = error
        found = self._known[source]
        if isinstance(found, SourceError):
            raise found
        return found

    def _opened(self, source: SourceSpec) -> OpenedSource:
        with ExitStack() as opened:
            catalog = opened.enter_context(closing(source_of(source.kind).open_catalog(source)))
            snapshot = catalog.snapshot("snapshot")
            hashers = opened.enter_context(closing(Hashers(catalog)))
            tables: dict[TableKey, TableInfo | Obstacle] = {}
            if self._tables:
                listed = catalog.list_tables().tables
                wanted = [each for each in listed if each.readable and each.key in self._tables]
                infos = catalog.describe_tables(wanted)
                tables = {table.key: info for table, info in zip(wanted, infos, strict=True)}
            self._held.push(opened.pop_all())
        return OpenedSource(catalog=catalog, snapshot=snapshot, hashers=hashers, tables=tables)

    @property
    def refused(self) -> bool:
        """Whether none could be opened, neither as it was nor as it is now."""
        return not any(isinstance(each, OpenedSource) for each in self._known.values())

    def tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._observe(Notice(text=text))

    def close(self) -> None:
        self._held.close()


def check_able(catalog: Catalog, kind: str) -> None:
    """Raise UsageError for a source that cannot compute checksums."""
    if not catalog.capabilities.hashes:
        raise UsageError(
            f"{kind} has no SQL that computes the checksums of --verify source",
            "unload with --verify full, which compares the files with the values that were fetched",
        )


def compare_units(
    units: Sequence[FinishedUnit],
    run: ResolvedTable,
    catalog: Catalog,
    observe: Observer,
    check: Callable[[], None],
) -> tuple[str, ...]:
    """Compare the fetched values of each unit, by their checksums, with the values in the source.

    The catalog holds the snapshot; `check` is called several times a second, and its error ends
    all. Returns the columns that the source cannot hash, each with why.
    """
    left_out = catalog.unhashed(run.extract)
    columns = tuple(column.name for column in run.extract.projection.columns)
    unhashed = tuple(f"{columns[at]}: {why}" for at, why in left_out.items())
    if unhashed:
        text = f"columns whose values are not compared with the source: {'; '.join(unhashed)}"
        observe(Notice(text=text))
    selectors = {unit.id: unit.selectors for unit in run.plan.units}
    parts = [(unit, unit.content) for unit in units if unit.content is not None]
    groups = [selectors[unit.unit] for unit, _ in parts]
    with closing(Hashers(catalog)) as hashers:
        found = hashers.sums(groups, run.extract, len(run.seating.seats), observe, check)
    differences = [
        f"unit {unit.unit}: {text}"
        for (unit, fetched), known in zip(parts, found, strict=True)
        for text in differing(known, fetched, columns, ("in the source", "fetched"), left_out)
    ]
    if differences:
        raise VerifyMismatch(
            some_of(differences),
            "run again; if it happens again, check whether the condition or query returns "
            "different rows each time; if not, report it with the plan",
        )
    return unhashed


class Hashers:
    """Sessions of one snapshot, opened when a thread finds none free; each unit has one alone."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._all: list[Hasher] = []
        self._free: queue.SimpleQueue[Hasher] = queue.SimpleQueue()

    def sums(
        self,
        groups: Sequence[tuple[Selector, ...]],
        extract: Extract,
        parallelism: int,
        observe: Observer,
        check: Callable[[], None] = lambda: None,
    ) -> list[ContentSums]:
        """Return the checksums of the rows of each group of selectors, in their order."""

        def watch(done: int, amount: int) -> None:
            check()
            observe(Verified(done=done, of=len(groups), what="units"))

        def cancel() -> None:
            for hasher in self._all:
                hasher.cancel()

        def of_group(selectors: tuple[Selector, ...], advance: Advance) -> ContentSums:
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
            return ContentSums.total(found)

        jobs = [partial(of_group, selectors) for selectors in groups]
        return in_parallel(jobs, parallelism, watch, cancel)

    def close(self) -> None:
        with ExitStack() as held:
            for hasher in self._all:
                held.enter_context(closing(hasher))


class SourceState(Struct, frozen=True, kw_only=True):
    """The answer of a source about a run that was read from it."""

    rows: int
    at_snapshot: bool
    """Read at the run's snapshot, not as the source is now."""
    content: Fetched | None = None
    """All values that the run was to read, as one part."""

    @property
    def when(self) -> str:
        return "at the run's snapshot" if self.at_snapshot else "as the source is now"


def ask(
    manifest: Manifest,
    source: SourceSpec,
    sources: OpenSources,
    observe: Observer,
    *,
    values: bool,
    parallelism: int,
) -> SourceState:
    """Return the source's current answer, at the run's snapshot where that still exists.

    With `values` checksums of all values are computed in `parallelism` sessions. A `UsageError`
    says that it cannot, or that the manifest does not show which rows the run read.
    """
    subset = manifest.subset
    if subset is not None and subset.units is not None and subset.selectors is None:
        raise UsageError(
            "the run took a sample of work units that are ranges of keys, and manifests do not "
            "contain values of a table",
            "verify the files alone, without SOURCE",
        )
    selectors = None if subset is None else subset.selectors
    if any(isinstance(each, KeyRange) for each in selectors or ()):
        # Their ends are SQL, which is not taken from a file.
        raise VerifyMismatch(
            "the manifest contains ranges of keys, but a run does not write ranges of keys into it",
            "restore the manifest, or verify the files alone, without SOURCE",
        )
    if values and subset is not None and subset.limit_rows is not None:
        raise UsageError(
            "the run read the rows that came first, and the source may return other rows now",
            "verify the files with --level full, without SOURCE",
        )
    if manifest.options.enable_row_security:
        source = replace(source, session=replace(source.session, enable_row_security=True))

    def answer(source: SourceSpec, refused: SourceError | None = None) -> SourceState:
        """Ask; `refused` is the reason not to go back to the run's snapshot."""
        opened = sources.at(source)
        catalog, snapshot = opened.catalog, opened.snapshot
        if values:
            check_able(catalog, source.kind)
        # Without its table, the state of the source says nothing.
        extract = _extract(opened, source, manifest, values)
        same = snapshot.kind != "none" and snapshot.is_same(was)
        if not same:
            why = "the source has changed since the run"
            if was is None or was.kind == "none":
                why = "the run had no snapshot"
            elif refused is not None:
                why = f"the run's snapshot cannot be read any more ({refused.message})"
                outlives = catalog.capabilities.snapshot_outlives_run
                if isinstance(refused, SnapshotGone) and not outlives:
                    # It is so after every run, and nothing has failed.
                    why = "the run's snapshot ended with the run"
            sources.tell(f"{why}, so the comparison uses the source as it is now")
        masked = any(column.masked for column in manifest.columns)
        with source_words_left_out(masked, extract.projection.columns):
            rows = (
                catalog.count(extract)
                if selectors is None
                else catalog.count_selected(extract, selectors)
            )
        content = None
        if values:
            observe(PhaseStarted(phase="comparing"))
            content = _content(opened, manifest, extract, selectors, parallelism, observe)
        return SourceState(rows=rows, at_snapshot=same, content=content)

    was = manifest.snapshot
    then = source_of(source.kind).at_snapshot(source, was.kind, was.value) if was else None
    if then is None:
        return answer(source)
    try:
        return answer(then)
    except SourceError as error:
        if error.retryable:
            raise
        refused = error
    return answer(source, refused)


def _content(
    opened: OpenedSource,
    manifest: Manifest,
    extract: Extract,
    sampled: tuple[Selector, ...] | None,
    parallelism: int,
    observe: Observer,
) -> Fetched:
    projection, catalog = extract.projection, opened.catalog
    known = [(column.name, column.output_type) for column in manifest.columns]
    found = [(column.name, column.output_type) for column in projection.columns]
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
    if sampled is not None:
        groups: list[tuple[Selector, ...]] = [(each,) for each in sampled]
    else:
        limits = PlanLimits(parallelism=parallelism)
        plan = plan_of(extract.table, Selection(partitions=extract.partitions), limits)
        groups = [unit.selectors for unit in plan.units]
    total = ContentSums.total(opened.hashers.sums(groups, extract, parallelism, observe))
    return Fetched(
        schema=projection.schema,
        columns=tuple(column.name for column in projection.columns),
        parts={TABLE: total},
        left_out=catalog.unhashed(extract),
    )


def _extract(opened: OpenedSource, source: SourceSpec, manifest: Manifest, values: bool) -> Extract:
    """Return the extract of the run, its values as it read them if they are asked for."""
    catalog = opened.catalog
    options = manifest.options
    known, name = manifest.table, None
    if known is not None:
        schema = None if known.schema is None else NamePart(text=known.schema, quoted=True)
        name = TableName(schema=schema, name=NamePart(text=known.name, quoted=True))
    selection = Selection(
        table=name,
        query=manifest.query,
        columns=options.columns if values else (),
        exclude=options.exclude if values else (),
        sample=options.sample,
        sample_by=options.sample_by,
    )
    found = None if known is None else opened.tables.get((known.schema or "", known.name))
    if found is None or known is None or known.schema is None or isinstance(found, Obstacle):
        # An obstacle is then reported in the words of the database.
        table = chosen_table(catalog, selection)
    else:
        table = with_columns(found, selection, catalog.capabilities.folding)
    shape = options.dialect if values else TextFormat()
    needs = OutputNeeds(text=shape if isinstance(shape, TextFormat) else None, batches_only=True)
    projection = project(
        catalog,
        table,
        selection.query,
        (needs,),
        as_text=options.as_text if values else ("*",),
        values=ValueOptions(
            number_without_precision=options.number_without_precision,
            nanoseconds="timestamp" if options.nanoseconds == "timestamp" else "string",
            zone_columns=options.zone_columns,
        )
        if values
        else None,
    )
    return Extract(
        source=source,
        snapshot=opened.snapshot,
        table=table,
        query=selection.query,
        where=options.where,
        partitions=options.partition,
        keys=keys_of(catalog, table, selection),
        limit_rows=options.limit_rows,
        projection=projection,
    )
