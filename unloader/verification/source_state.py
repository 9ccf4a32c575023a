"""What a source says of a finished run: its rows, and checksums of its values.

At the run's snapshot where that still exists, otherwise as the source is now: the answer says
which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import KeyRange, Selector
from unloader.errors import SnapshotGone, SourceError, UsageError, VerifyMismatch
from unloader.events import Observer, PhaseStarted
from unloader.manifest.asked import OptionsRecord
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
from unloader.resolve.planning import keys_of, plan_of
from unloader.sources.base import Capabilities
from unloader.sources.hashing import HashingCatalog
from unloader.sources.projection import OutputNeeds, project
from unloader.sources.readings import ENCODED_TYPE
from unloader.sources.registry import source_of
from unloader.sources.sampling import SamplingCatalog
from unloader.verification.open_sources import OpenedSource, OpenSources
from unloader.verification.source_values import Asking, check_able, source_sums
from unloader.worker.masked_failures import source_words_left_out
from writers.content.sums import total
from writers.model import ContentSums, TextFormat


class SourceContent(Struct, frozen=True, kw_only=True):
    """The checksums of all values that a run was to read, as the source computes them."""

    sums: ContentSums
    unhashed: Mapping[int, str]
    """Columns that it cannot hash, by index, each with why."""
    schema: str
    """Of the columns as they are read, as an Arrow IPC message."""
    columns: tuple[str, ...]


class SourceState(Struct, frozen=True, kw_only=True):
    """What a source says of a run that was read from it."""

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
    """Return what the source says now, at the run's snapshot where that still exists.

    Args:
        question: The run, and what is asked of it.
        sources: The source, opened where it has to be.
        observe: Called with each event of this table.

    Raises:
        SourceError: The source refused.
        UsageError: It cannot compute checksums, and is asked for them; or nobody can tell any more
            which rows the run read.
    """
    manifest, source = question.manifest, question.source
    _check_tellable(question)
    if manifest.options.enable_row_security:
        source = replace(source, session=replace(source.session, enable_row_security=True))
    at_snapshot = _at_snapshot(source, manifest)
    if at_snapshot is not None:
        try:
            return _asked(replace(question, source=at_snapshot), sources, observe)
        except SourceError as error:
            if error.retryable:
                raise
            return _asked(replace(question, source=source), sources, observe, refused=error)
    return _asked(replace(question, source=source), sources, observe)


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
    was = manifest.snapshot
    same = snapshot.kind != "none" and snapshot.is_same(was)
    if not same:
        why = _why_not_same(catalog.capabilities, was, refused)
        sources.tell(f"{why}, so the comparison uses the source as it is now")
    extract, selectors = _extract(opened, question), _sampled(manifest)
    masked = any(column.masked for column in manifest.columns)
    with source_words_left_out(masked, extract.projection.columns):
        rows = (
            catalog.count(extract)
            if selectors is None
            else cast(SamplingCatalog, catalog).count_selected(extract, selectors)
        )
    content = _content(opened, question, observe) if question.values else None
    return SourceState(rows=rows, at_snapshot=same, content=content)


def _why_not_same(
    capabilities: Capabilities, was: Snapshot | None, refused: SourceError | None
) -> str:
    """Return why a source is not read at the snapshot of a run.

    Args:
        capabilities: Of the source.
        was: The run's snapshot.
        refused: What the source said when it was to go back to that snapshot.
    """
    if was is None or was.kind == "none":
        return "the run had no snapshot"
    if refused is None:
        return "the source has changed since the run"
    if isinstance(refused, SnapshotGone) and not capabilities.snapshot_outlives_run:
        # It is so after every run, and nothing has failed.
        return "the run's snapshot ended with the run"
    return f"the run's snapshot cannot be read any more ({refused.message})"


def _content(opened: OpenedSource, question: Question, observe: Observer) -> SourceContent:
    manifest, catalog = question.manifest, opened.catalog
    extract = _extract(opened, question)
    known = [(column.name, column.output_type) for column in manifest.columns]
    found = [(column.name, column.output_type) for column in extract.projection.columns]
    if _without_encoded(known, found) != found:
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
    sums = source_sums(_groups(question, extract), asking)
    return SourceContent(
        sums=total(sums),
        unhashed=cast(HashingCatalog, catalog).unhashed(extract),
        schema=extract.projection.schema,
        columns=tuple(column.name for column in extract.projection.columns),
    )


def _groups(question: Question, extract: Extract) -> list[tuple[Selector, ...]]:
    """Return what is read of the table, in parts that several sessions share out."""
    sampled = _sampled(question.manifest)
    if sampled is not None:
        return [(each,) for each in sampled]
    limits = PlanOptions().limits(question.parallelism)
    plan = plan_of(extract.table, Selection(partitions=extract.partitions), limits)
    return [unit.selectors for unit in plan.units]


def _sampled(manifest: Manifest) -> tuple[Selector, ...] | None:
    """Return what the units of a sample read; None if the run took no such sample."""
    found = None if manifest.subset is None else manifest.subset.selectors
    if any(isinstance(each, KeyRange) for each in found or ()):
        # Their ends are SQL, which is not taken from a file.
        raise VerifyMismatch(
            "the manifest contains ranges of keys, but a run does not write ranges of keys into it",
            "restore the manifest, or verify the files alone, without SOURCE",
        )
    return found


def _without_encoded(
    known: Sequence[tuple[str, str]], found: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the columns of a run, those of which the database made the text as they are now."""
    return [
        now if (name, kind) == (now[0], ENCODED_TYPE) else (name, kind)
        for (name, kind), now in zip_longest(known, found, fillvalue=("", ""))
    ]


def _at_snapshot(source: SourceSpec, manifest: Manifest) -> SourceSpec | None:
    """Return the source as it was at the run's snapshot, None where it cannot go back."""
    snapshot = manifest.snapshot
    if snapshot is None:
        return None
    return source_of(source.kind).at_snapshot(source, snapshot.kind, snapshot.value)


def _extract(opened: OpenedSource, question: Question) -> Extract:
    """Return what the run read, its values as it read them if they are asked for."""
    catalog = opened.catalog
    manifest, options = question.manifest, question.manifest.options
    selection = Selection(
        table=_table_name(manifest),
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
        values=_value_options(options) if question.values else None,
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


def _value_options(options: OptionsRecord) -> ValueOptions:
    return ValueOptions(
        number_without_precision=options.number_without_precision,
        nanoseconds="timestamp" if options.nanoseconds == "timestamp" else "string",
        zone_columns=options.zone_columns,
    )


def _table_name(manifest: Manifest) -> TableName | None:
    table = manifest.table
    if table is None:
        return None
    return TableName(
        schema=None if table.schema is None else NamePart(text=table.schema, quoted=True),
        name=NamePart(text=table.name, quoted=True),
    )
