"""The plan of a table: a new one, or an earlier one that belongs to the same job and still fits.

Some rows are `--partition`, `--sample`, with or without `--sample-by`, or `--limit-rows`.

Rows of two states must never come together under one manifest, and the parts of a plan run at other
times and on other machines. So each part goes back to the snapshot that the plan was made at.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.json import encode
from msgspec.structs import replace

from partition_planner.model import KeyRange, Plan, PlanLimits, RowRange, TableInfo, WholeTable
from partition_planner.planner import plan as make_plan
from partition_planner.planner import plan_of_units, sampled_plan
from unloader.errors import PlanFailed, SnapshotGone, UnloaderError, UsageError
from unloader.model import (
    EncryptionOptions,
    OutputOptions,
    Request,
    SampledKeys,
    SecretReference,
    Selection,
    Snapshot,
    SourceSpec,
)
from unloader.request.names import matching_partitions, one_column, typed
from unloader.resolve.resolved import ResolvedOutput, ResolvedTable, has_same_keys, with_key_places
from unloader.secrets.keys import check_key
from unloader.selection.asked import TablesRequest
from unloader.sources.base import Catalog
from unloader.sources.questions import check_able, describe_query, sampled_keys
from unloader.sources.registry import source_of

SHOWN_NAMES = 5


def keys_of(catalog: Catalog, table: TableInfo, selection: Selection) -> SampledKeys | None:
    """Return the sample of keys that was asked for; None if rows of all keys are read."""
    share = selection.sampled_share
    if share is None or selection.sample_by is None:
        return None
    check_able(catalog, "sample")
    wanted, whole = selection.sample_by, table
    if selection.columns or selection.exclude:
        # A name must mean the same column for every choice of columns.
        if selection.query is not None:
            whole = describe_query(catalog, selection.query)
        elif selection.table is not None:
            whole = catalog.describe(selection.table)
    names = [column.name for column in whole.columns]
    try:
        name = one_column(names, wanted, catalog.capabilities.folding)
    except UsageError as error:
        raise UsageError(
            f"--sample-by {wanted}: {error.message} in {table.label}",
            f"{error.hint}; in a run of several tables, give this table its own sample-by, or "
            'sample = "100%", below its [[table]] in a job file',
        ) from error
    return sampled_keys(catalog, table.label, whole.columns[names.index(name)], share)


def limits_of(
    request: Request, catalog: Catalog, parallelism: int, unit_bytes: int | None = None
) -> PlanLimits:
    """Return the limits of a plan; `unit_bytes` is the size of the units of all of several tables.

    A size that the user gave has priority. The units of a sample are as small as it needs them.
    Raises UsageError if the source cannot read the part of the rows that is asked for.
    """
    selection = request.selection
    for asked, what in (
        (selection.sampled_share, "sample"),
        (selection.part, "part"),
        (selection.limit_rows, "limit-rows"),
    ):
        if asked is not None:
            check_able(catalog, what)
    takes_units = selection.sampled_share is not None and selection.sample_by is None
    if selection.limit_rows is not None and takes_units:
        raise UsageError(
            "--sample takes whole work units, but --limit-rows takes a number of rows",
            "leave out one of the two, or add --sample-by",
        )
    if unit_bytes is None or request.unit_bytes is not None or takes_units:
        unit_bytes = request.unit_bytes
    return PlanLimits(parallelism=parallelism, split=request.split, unit_bytes=unit_bytes)


def plan_of(table: TableInfo, selection: Selection, limits: PlanLimits) -> Plan:
    """Return the plan of the requested rows of a table.

    Rows that are limited in number are one unit, because a unit cannot count the rows of others.
    Raises PlanFailed if a pattern matches no partition, and PlanError as the planner.
    """
    wanted = _partitions(table, selection.partitions) if selection.partitions else None
    if selection.limit_rows is not None:
        limits = replace(limits, split="none")
    share = selection.sampled_share
    if share is not None and selection.sample_by is None:
        return sampled_plan(table, limits, share, wanted)
    plan, most = make_plan(table, limits, wanted), selection.limit_rows
    if share is None and most is None:
        return plan
    units = []
    for unit in plan.units:
        if unit.rows is not None:
            rows = unit.rows if share is None else round(unit.rows * share)
            unit = replace(unit, rows=rows if most is None else min(rows, most))
        units.append(unit)
    return plan_of_units(
        table=plan.table, partitions=plan.partitions, units=tuple(units), limits=plan.limits
    )


def _partitions(table: TableInfo, patterns: tuple[str, ...]) -> frozenset[str]:
    names = [part.name for part in table.partitions]
    typed_name = ".".join(typed(each, "any") for each in (table.schema, table.name) if each)
    described = shlex.join(("unloader", "describe", "SOURCE", "--table", typed_name))
    if not names:
        raise PlanFailed(
            f"{table.label} has no partitions that can be read separately, but --partition asks "
            f"for {', '.join(patterns)}",
            f"leave out --partition, or use --where; to find a missing privilege, see: {described}",
        )
    known = frozenset(names)
    missed = [
        each for each in patterns if each not in known and not matching_partitions(names, (each,))
    ]
    if not missed:
        return matching_partitions(names, patterns)
    near = [name for name in names if name.casefold().endswith(f"/{missed[0].casefold()}")]
    shown = (near or names)[:SHOWN_NAMES]
    raise PlanFailed(
        f"--partition {', '.join(missed)} matches no partition of {table.label}",
        f"use names such as {', '.join(shown)}, or see all {len(names)} with: {described}; in a "
        "run of several tables, give each table its own partition below its [[table]] in a job "
        "file",
    )


AGAIN = (
    "make the plan again and run all its parts again; on PostgreSQL with --keep-snapshot, on "
    "Oracle with enough undo"
)

_SAME_KEY = "give the key of the plan, or make a new plan and run all its parts with the same key"


def check_fits(plan: Plan, table: TableInfo, patterns: tuple[str, ...]) -> None:
    """Check that an earlier plan still describes the table, and suits the current request.

    Sizes may have changed, as units at the edges are open-ended; columns and partitions may not:
    a partition that no unit knows would be missing from the output. Raises PlanFailed.
    """
    was, now = plan.table, table

    def identities(table: TableInfo) -> dict[str, tuple[object, ...]]:
        """What makes a partition that one: its relation, or else where its rows begin."""
        return {
            part.name: (
                part.relation,
                () if table.named_partitions else tuple(each.first for each in part.extents),
            )
            for part in table.partitions
        }

    before, after = identities(was), identities(now)
    read = {name for name in before if plan.partitions is None or name in plan.partitions}
    wanted = matching_partitions(after, patterns or ("*",))
    in_parts = any(not isinstance(selector, WholeTable) for selector in plan.selectors)
    ranges = [each for each in plan.selectors if isinstance(each, (RowRange, KeyRange))]
    # The segments whose addresses the plan's ranges hold.
    segments = {each.object_id for each in ranges if isinstance(each, RowRange)} - {None}
    problem = None
    if (was.schema, was.name) != (now.schema, now.name):
        problem = f"it is for {was.label}, not for {now.label}"
    elif was.columns != now.columns:
        problem = "the columns have changed"
    elif (plan.partitions is None) != (not patterns):
        asked = f"--partition {', '.join(patterns)}" if patterns else "the whole table"
        problem = f"it is for other partitions than {asked}"
    elif read - after.keys():
        problem = f"partitions were dropped, such as {min(read - after.keys())}"
    elif moved := sorted(name for name in read if before[name] != after[name]):
        problem = f"partitions were replaced, such as {moved[0]}"
    elif in_parts and wanted - before.keys():
        problem = f"partitions were added, such as {min(wanted - before.keys())}"
    elif in_parts and wanted != read and (plan.has_all_units or not read <= wanted):
        problem = f"it is for other partitions, such as {min(wanted ^ read)}"
    elif not now.row_ranges and any(each.partition is None for each in ranges):
        problem = "ranges of its rows can no longer be read separately"
    elif not segments <= {now.object_id, *(part.object_id for part in now.partitions)}:
        problem = "rows were moved to other segments, so its ranges now mean other rows"
    if problem:
        raise PlanFailed(f"the plan no longer fits the table: {problem}", "make a new plan")


@contextmanager
def gone(what: str, hint: str, *errors: type[UnloaderError]) -> Iterator[None]:
    """Raise SnapshotGone, for the snapshot of a plan or a run, in place of some errors."""
    try:
        yield
    except errors as error:
        raise SnapshotGone(
            f"the snapshot of {what} cannot be read any more: {error.message}", hint
        ) from error


def source_at(source: SourceSpec, snapshot: Snapshot) -> SourceSpec | None:
    """Return a source as it is opened at a snapshot; None if this kind of source cannot be."""
    if snapshot.kind == "none":
        return source  # The user accepts rows of different moments.
    return source_of(source.kind).at_snapshot(source, snapshot.kind, snapshot.value)


def source_of_plan(source: SourceSpec, planned: ResolvedTable | None) -> SourceSpec:
    """Return the source for a part, as it is opened at the snapshot of its plan."""
    if planned is None:
        raise UsageError(
            "--part needs a plan file: the parts of a table come from one plan",
            "make one with unloader plan SOURCE --output plan.json, and run plan.json",
        )
    snapshot = snapshot_of(planned)
    found = source_at(source, snapshot)
    if found is None:
        raise UsageError(
            f"{source.kind} cannot go back to the snapshot of the plan, {snapshot.kind} "
            f"{snapshot.value}",
            "run the plan as a whole, without --part",
        )
    return found


def with_keys_of_plan(
    outputs: tuple[ResolvedOutput, ...], planned: ResolvedTable
) -> tuple[ResolvedOutput, ...]:
    """Return the outputs of a part with the proofs of the plan's keys.

    A proof has a salt, so each run would have another proof. The manifests of the parts would not
    show whether they were masked and encrypted with one key. Raises PlanFailed if a key differs.
    """
    found = []
    for output, was in zip(outputs, planned.outputs, strict=True):
        options, had = output.options, was.options
        if options.transform is not None and had.transform is not None and had.transform.keys:
            if not has_same_keys(had.transform, options.transform):
                raise PlanFailed("a masking key differs from the plan's key", _SAME_KEY)
            transform = with_key_places(had.transform, options.transform.keys)
            options = replace(options, transform=transform)
            output = replace(output, transformed=was.transformed, origins=was.origins)
        if options.encryption is not None and had.encryption and had.encryption.key_proof:
            encryption = replace(options.encryption, key_proof=had.encryption.key_proof)
            if not check_key(encryption):
                raise PlanFailed("the Parquet key differs from the plan's key", _SAME_KEY)
            options = replace(options, encryption=encryption)
        found.append(replace(output, options=options))
    return tuple(found)


def is_of_plan(run: ResolvedTable, planned: ResolvedTable) -> bool:
    part = run.plan.part
    return (
        part is not None
        and part.plan_digest == planned.plan.digest
        and snapshot_of(planned).is_same(run.extract.snapshot)
    )


def snapshot_of(planned: ResolvedTable) -> Snapshot:
    if planned.extract.snapshot is None:
        raise PlanFailed("the plan has no snapshot that its parts could share", AGAIN)
    return planned.extract.snapshot


def digest_of_job(request: Request) -> str:
    """Return the SHA-256, in hex, of the rows that a request selects, and how it writes them.

    Speed, retries and the places of secrets make no difference. Statements of a session and the
    Parquet key are compared elsewhere, because no record contains them.
    """
    return hashlib.sha256(encode(_job_of(request), order="sorted")).hexdigest()


def digest_of_tables_job(asked: TablesRequest) -> str:
    """Return the SHA-256, in hex, of the request for several tables, without any secret.

    The patterns are compared, because the tables that they match may change from night to night.
    """
    document: dict[str, Any] = {
        "to": asked.options.destination,
        "entries": [
            replace(entry, request=_job_of(entry.request), label="") for entry in asked.entries
        ],
    }
    routes = [
        [each.output.destinations for each in entry.request.routes or ()] for entry in asked.entries
    ]
    if any(routes):
        # "to" has only the place of the first route.
        document["routes"] = routes
    return hashlib.sha256(encode(document, order="sorted")).hexdigest()


def _job_of(request: Request) -> Request:
    source = request.source
    session = replace(source.session, run_id="", session_sql=())
    routes = request.routes
    if routes is not None:
        routes = tuple(
            replace(each, output=_written_how(each.output), settings=()) for each in routes
        )
    return Request(
        source=replace(source, secret=SecretReference(), session=session),
        selection=request.selection,
        output=_written_how(request.output),
        consistency=request.consistency,
        values=request.values,
        fixed=request.fixed,
        routes=routes,
    )


def _written_how(output: OutputOptions) -> OutputOptions:
    encryption, transform = output.encryption, output.transform
    if encryption is not None:
        # The key is compared elsewhere; here it only matters that there is one.
        key = SecretReference(kind="file") if encryption.keyed else SecretReference()
        encryption = EncryptionOptions(
            recipients=encryption.recipients, key=key, key_name=encryption.key_name
        )
    return replace(
        output,
        destination="",
        others=(),
        overwrite=False,
        keep=None,
        latest_link=None,
        encryption=encryption,
        transform=None if transform is None else replace(transform, keys=()),
    )
