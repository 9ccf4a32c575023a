"""From a request to a resolved run with its open source: the one place where all is decided.

`plan` shows and writes what comes of this, `run` executes it, so the two cannot disagree.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import PlanFailed
from unloader.events import Observer, PhaseStarted, silent
from unloader.lakehouse.lake_formats import lake_format, lake_kind
from unloader.lakehouse.table_commits import Wanted
from unloader.model import OutputOptions, Request
from unloader.placement.seating import SeatPlan
from unloader.request.names import one_column
from unloader.resolve.outputs.directories import placed
from unloader.resolve.outputs.encrypting import checked_encryption
from unloader.resolve.parts import (
    at_snapshot_of_plan,
    explained,
    in_snapshot_of_plan,
    with_keys_of_plan,
)
from unloader.resolve.preparation import Prepared, prepared
from unloader.resolve.resolved import ResolvedOutput, ResolvedRun
from unloader.sources.base import Catalog
from unloader.tuning.codec_choice import chosen
from writers.codecs.choice import Choice
from writers.model import Compression, ParquetFormat
from writers.objects.location import below
from writers.schema import read_schema

if TYPE_CHECKING:
    from unloader.resolve.preparation import Prepared


Codec = tuple[Compression, Choice | None]
"""A codec, and how a preset chose it."""


class OpenRun(Struct, frozen=True, kw_only=True):
    """A resolved run; its catalog holds the snapshot while the context is open."""

    run: ResolvedRun
    catalog: Catalog
    started: float
    """When the preparation began, by `time.perf_counter`."""
    resumed_in: tuple[str, ...] = ()
    """Where a broken run of this id has left what is gone on with; empty for a new run."""

    def place_of(self, own: ResolvedRun) -> str:
        """Return the directory of one of its outputs, which may have been moved since it began.

        Args:
            own: The run as if that were its only output.
        """
        moved = len(self.run.outputs) == 1 and self.resumed_in
        return (moved or own.output.options.destinations)[0]


@contextmanager
def resolved(
    request: Request,
    *,
    planned: ResolvedRun | None = None,
    seats: Callable[[], SeatPlan] | None = None,
    stop: Callable[[], bool] = lambda: False,
    observe: Observer = silent,
) -> Iterator[OpenRun]:
    """Open the source, take the snapshot and decide everything that is left to be decided.

    Args:
        request: What was asked.
        planned: A run that was resolved earlier. Its plan and its codec are taken again, once the
            plan was found to fit the table; snapshot, seats and run id are new ones.
        seats: Returns those that were decided already, for workers that start by now; called once
            the table is known. None decides them.
        stop: Asked several times a second until all is decided; True cancels what is going on.
        observe: Reports each step as it begins.

    Raises:
        Interrupted: `stop` returned True.
        SourceError: The source refused.
        PlanFailed: The table cannot be cut as asked, or the planned run does not fit it.
        UsageError: The selection names what is not there.
    """
    run_id = new_run_id()
    _check_planned(request, planned)
    plan = None if planned is None else planned.plan
    with ExitStack() as opened:
        if request.selection.part is None:
            opening = prepared(request, stop, observe, run_id=run_id, planned=plan, seats=seats)
            ready = opened.enter_context(opening)
        else:
            with explained():
                asked, planned = at_snapshot_of_plan(request, planned)
                plan = planned.plan
                opening = prepared(asked, stop, observe, run_id=run_id, planned=plan, seats=seats)
                ready = in_snapshot_of_plan(opened.enter_context(opening), planned)
        _check_same_transform(ready, planned)
        outputs = resolved_outputs(
            ready, run_id, lambda number, each: _codec(number, each, planned, observe, stop)
        )
        if planned is not None and request.selection.part is not None:
            outputs = with_keys_of_plan(outputs, planned)
        run = ResolvedRun(
            run_id=run_id,
            request=request,
            server_version=ready.catalog.server_version,
            extract=ready.extract,
            plan=ready.plan,
            outputs=outputs,
            topology=ready.topology,
            seating=ready.seating,
        )
        yield OpenRun(run=run, catalog=ready.catalog, started=ready.started)


def resolved_outputs(
    ready: Prepared, run_id: str, codec: Callable[[int, Prepared], Codec]
) -> tuple[ResolvedOutput, ...]:
    """Return the outputs of a run, with their real places.

    Args:
        ready: The run.
        run_id: Its id.
        codec: Returns the codec of an output, by its number.

    Raises:
        UsageError: Two would have one place, or one cannot be encrypted as asked.
        ConfigError: A key is missing.
        OutputFailed: A name is too long.
    """
    found = []
    for number, each in enumerate(ready.of_outputs()):
        compression, choice = codec(number, each)
        options = replace(
            placed(each.request.output, each.extract, run_id),
            encryption=checked_encryption(each.request),
        )
        if lake_kind(options.destination) is not None:
            options = in_table(options, each, run_id)
        output = ResolvedOutput(
            options=options,
            format=each.format,
            compression=compression,
            choice=choice,
            transform=each.transform,
        )
        found.append(output)
    if len(found) > 1:
        from unloader.resolve.outputs.routes import check_places

        check_places(ready.request, [each.options for each in found])
    if len(found) > 1 or ready.request.uses_cluster:
        # Whoever reads the place has another directory of its own.
        from unloader.resolve.outputs.routes import at_absolute_places

        found = [replace(each, options=at_absolute_places(each.options)) for each in found]
    return tuple(found)


def _check_planned(request: Request, planned: ResolvedRun | None) -> None:
    """Refuse to write in the open what was planned to be encrypted."""
    now = [checked_encryption(each) for each in request.of_outputs()]
    if planned is None or all(
        was.options.encryption is None or encryption is not None
        for was, encryption in zip(planned.outputs, now, strict=True)
    ):
        return
    raise PlanFailed(
        "the plan is for encrypted files, but no key or recipient is given",
        "give the key or the recipients again, or make a new plan",
    )


def _check_same_transform(ready: Prepared, planned: ResolvedRun | None) -> None:
    """Refuse to write rows otherwise than a plan says, such as in the clear what was masked."""
    if planned is None:
        return
    was = [each.transform for each in planned.outputs]
    now = [each.transform for each in ready.of_outputs()]
    # Its steps: the places of its keys may be others.
    if [each and each.options.transform for each in was] != [
        each and each.options.transform for each in now
    ]:
        raise PlanFailed(
            "the plan transforms the rows in another way than these options do",
            "give the options of the plan again, or make a new plan",
        )


def new_run_id() -> str:
    """Return a name for a run that no other has, which sorts by time.

    Behind the second stand five hex digits of microseconds, then six that are random.
    """
    now = datetime.now(UTC)
    return f"{now:%Y%m%dT%H%M%SZ}-{now.microsecond:05x}{os.urandom(3).hex()}"


def _codec(
    number: int,
    ready: Prepared,
    planned: ResolvedRun | None,
    observe: Observer,
    stop: Callable[[], bool],
) -> Codec:
    """Return the codec, and how a preset chose it: now, or when the run was planned."""
    asked = ready.request.output.compression
    before = None if planned is None else planned.outputs[number].choice
    if planned is not None and type(planned.outputs[number].format) is not type(ready.format):
        before = None  # It was measured for other files.
    if before is not None and asked in (before.compression, before.preset):
        return before.compression, before
    if isinstance(asked, Compression):
        return asked, None
    observe(PhaseStarted(phase="measuring"))
    choice = chosen(ready, asked, observe=observe, stop=stop)
    return choice.compression, choice


def in_table(options: OutputOptions, ready: Prepared, run_id: str) -> OutputOptions:
    """Return the output of one run, its place a real one: below the table's data, named by the run.

    Raises:
        UsageError: The name of the table cannot be read, or there is no column to partition by.
        ConfigError: A library is missing, or a catalog is not configured.
        OutputFailed: The files cannot become part of the table, as far as that is known now.
    """
    name = options.destination
    kind = lake_kind(name)
    assert kind is not None
    projection = ready.extract.projection if ready.transform is None else ready.transform.written
    names = [column.name for column in projection.columns]
    folding = ready.catalog.capabilities.folding
    tables = lake_format(kind)
    table = tables.prepared(
        Wanted(
            name=name,
            save_mode=options.save_mode or "create",
            replace_where=options.replace_where,
            branch=options.branch,
            schema=read_schema(projection.schema),
            partition_by=tuple(
                replace(each, column=one_column(names, each.column, folding))
                for each in options.partition_by
            ),
            sorted_by=ready.format.sorted_by if isinstance(ready.format, ParquetFormat) else (),
        )
    )
    return replace(
        options,
        destination=below(tables.data_place(name), run_id),
        lake_table=replace(table, files=f"{table.files}/{run_id}"),
    )
