"""Taking the places of all tables of a run.

All places are taken before anything is read, and all obstacles are reported together.

A run over several tables also has a home: the directory around theirs, with the record, the status
and the manifest of the run. A single table's directory is its home.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from msgspec.structs import replace

from unloader.errors import ConfigError, OutputFailed, UnloaderError
from unloader.events import Notice, Observer
from unloader.manifest.model import Manifest
from unloader.manifest.read import is_published, read_index, read_manifest
from unloader.nouns import counted
from unloader.resolve.places import is_dropped
from unloader.resolve.resolved import ResolvedTable, first_of, of_output, record_of, recorded_tables
from unloader.retention import Following
from unloader.run.outputs import FileOutput, RunOutput
from unloader.run.table import History, RunState, Table
from unloader.selection.listing import TableProblem, one_error
from unloader.storage.place_names import KEPT, destination_kind, is_kept, path_of, real
from unloader.storage.storage_lookup import storage_at, unreadable
from unloader.storage.storage_protocol import MANIFEST, RUN_RECORD, Claim, Completed
from writers.objects.location import is_location

TablePlaces = tuple[str, ...]
"""Where the outputs of a table go, which tells it from the other tables of a run."""

Left = tuple[Manifest | bool | None, ...]
"""The remains of a table: of each output its manifest if it is published, else whether units may be
staged there; None if the output keeps nothing."""

_OTHERS = 256
"""Pipes to workers, sockets, libraries: far more than a run has."""

_PUBLISHED = 320
"""About as many files as the tables have open that are being published; see
`unloader.run.ending`."""


def take_home(state: RunState) -> Callable[[], None]:
    """Take the directory around several tables; return a function that records the work to do.

    The tables of a dead run may be read again at a new snapshot. Its record stays until the new
    run's record is written, so a kill between the two leaves a run that can be resumed.
    """
    resolved, place = state.resolved, state.home
    if state.is_single or is_dropped(place):
        return partial(_keep_record, state, ())
    storage = storage_at(place)
    # Directories of a dead run that the new run does not take: nothing could resume them.
    abandoned: list[tuple[str, str]] = []
    if not resolved.resumed_in:
        own = {real(each) for run in resolved.tables for each in run.directories}
        with suppress(OSError):  # Then it cannot be taken either.
            who = storage.who_was_here(place, counted=False)
            record = storage.record(place, RUN_RECORD) if who else b""
            abandoned = [
                (each, table.run_id)
                for table in recorded_tables(record, place)
                for each in table.directories
                if real(each) not in own
            ]

    def is_record_of_it(record: bytes) -> bool:
        try:
            return first_of(record, place).run_id == resolved.run_id
        except OutputFailed:
            return False

    state.storage = storage.take(
        Claim(
            places=(place,),
            run_id=resolved.run_id,
            overwrite=state.options.overwrite,
            read_index=read_index,
            resumed=bool(resolved.resumed_in),
            is_record_of_it=is_record_of_it,
            keeps_record=bool(state.options.replaces),
            shared=True,
        )
    )
    return partial(_keep_record, state, abandoned)


def _keep_record(state: RunState, abandoned: Iterable[tuple[str, str]]) -> None:
    """Write the record, without a session's statements: they may hold a password."""
    if not state.storages:
        return
    # A table whose directory was refused is recorded once, as left out.
    taken = {places_of(table.run) for table in state.tables}
    record = record_of(
        [run for run in state.resolved.tables if places_of(run) in taken],
        state.home,
        state.options,
        state.problems,
        is_single=state.is_single,
    )
    for each in state.storages:
        each.keep(RUN_RECORD, record)
    for place, run_id in abandoned:
        with suppress(OSError, OutputFailed):
            storage = storage_at(place)
            who = storage.who_was_here(place, counted=False)
            if who is not None and who.run_id == run_id and not who.is_running:
                storage.clear((place,), dry_run=False)
                if not is_location(place):
                    os.rmdir(place)


def take_tables(
    state: RunState, following: Following, held: ExitStack, left: Mapping[TablePlaces, Left]
) -> None:
    """Take the directories of the tables and check all names, before anything is read."""
    runs, options, resumed = state.resolved.tables, state.options, state.resolved.resumed_in
    problems = list(state.resolved.problems)
    if not state.is_single:
        allow_for(len(runs))
    # Of a run that is resumed, `left_of_tables` has completed the publications.
    if not (state.is_single or resumed):
        every = [output.options for run in runs for output in run.outputs]
        complete(state.home, [place for each in every for place in each.destinations], state.live)
    for run in runs:
        try:
            state.tables.append(_opened(state, run, following, held, left))
        except UnloaderError as error:
            if state.is_single:
                raise
            problems.append(TableProblem(table=run.extract.table.label, error=error))
    if problems and not (options.on_failure == "continue" and state.tables):
        is_new = not (resumed or options.replaces)
        raise one_error(problems, len(problems) + len(state.tables), goes_on=is_new)
    state.problems = problems


def _opened(
    state: RunState,
    run: ResolvedTable,
    following: Following,
    held: ExitStack,
    left: Mapping[TablePlaces, Left],
) -> Table:
    found = left.get(places_of(run), (False,) * len(run.outputs))
    is_done = is_complete(found)
    if state.options.replaces:
        # The files that the replaced run has published may be replaced.
        outputs = []
        for each in run.outputs:
            place = each.options.destination
            storage = storage_at(place)
            if any(is_published(storage, place, earlier) for earlier in state.options.replaces):
                each = replace(each, options=replace(each.options, overwrite=True))
            outputs.append(each)
        run = replace(run, outputs=tuple(outputs))
    opened: list[RunOutput] = []
    # A table that is published gives its files back then: there may be thousands.
    own = ExitStack()
    held.callback(own.close)
    nodes = run.topology.nodes if state.is_single else ()
    try:
        for number, begun in enumerate(found):
            own_run, route = of_output(run, number), ""
            if len(run.outputs) > 1:
                route = (run.request.routes or ())[number].name
            kind = destination_kind(own_run.output.options.destinations)
            output: RunOutput
            if isinstance(begun, Manifest) or is_done or kind == "null":
                output = RunOutput(own_run, number, route)
                output.manifest = begun if isinstance(begun, Manifest) else None
            elif kind not in KEPT:
                from unloader.run.stream_output import StreamOutput

                output = StreamOutput(own_run, pipe=kind == "pipe")
            else:
                home = "" if state.is_single else state.home
                output = FileOutput(own_run, number, route, resumed=bool(begun), home=home)
            own.callback(output.close)
            opened.append(output)
        table = Table(
            number=len(state.tables),
            run=run,
            state=state,
            outputs=opened,
            observe=state.observer_of(run, state.live),
            history=History(
                began=time.monotonic() - (time.perf_counter() - state.resolved.started),
                tally=state.live.tally,
                cpus={node.id: node.cpus for node in nodes if node.cpus},
            ),
            resumed=any(found) and not is_done,
            is_published=is_done,
            release=own.close,
        )
        table.then = lambda run, manifest: following.after(run, manifest, table.observe)
        try:
            for output in opened:
                if output.is_open:
                    output.begin(table.observe, state.live.stop)
        except BaseException:
            table.abandon(kept=False)
            raise
    except BaseException:
        own.close()
        raise
    for output in opened if is_done else ():
        if output.manifest is not None:
            # The process that published it may have been killed before this.
            table.then(output.run, output.manifest)
    return table


def allow_for(tables: int) -> None:
    """Raise the soft limit of open files: each table has its lock open, and later its journal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * tables + _OTHERS + _PUBLISHED
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < tables + _OTHERS:
        raise ConfigError(
            f"{counted(tables, 'table needs', 'tables need')} {wanted} open files, but the "
            f"system lets this process have only {hard}",
            "raise the hard limit of open files (ulimit -Hn), or unload fewer tables in one run",
        )
    enough = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))


def places_of(run: ResolvedTable) -> TablePlaces:
    return tuple(output.options.destination for output in run.outputs)


def is_complete(left: Left) -> bool:
    """Return whether all outputs of a table that are kept are published."""
    kept = [each for each in left if each is not None]
    return bool(kept) and all(isinstance(each, Manifest) for each in kept)


def left_of_tables(
    runs: Iterable[ResolvedTable], home: str, observe: Observer
) -> Mapping[TablePlaces, Left]:
    """Return the remains of each table, once interrupted publications are completed."""
    listed = tuple(runs)
    complete(home, [place for run in listed for place in run.directories], observe)
    found: dict[TablePlaces, Left] = {}
    for run in listed:
        left: list[Manifest | bool | None] = []
        for output in run.outputs:
            place = output.options.destination
            begun: Manifest | bool | None = None
            if is_kept(output.options.destinations):
                storage, begun = storage_at(place), False
                try:
                    if MANIFEST in storage.names(place):
                        manifest = read_manifest(path_of(place))
                        begun = manifest if manifest.run_id == run.run_id else begun
                    if not begun:
                        who = storage.who_was_here(place, counted=False)
                        begun = who is not None and who.run_id == run.run_id
                except FileNotFoundError:
                    pass
                except OSError as error:
                    raise unreadable(place, error) from error
            left.append(begun)
        found[places_of(run)] = tuple(left)
        for place in run.directories if is_complete(found[places_of(run)]) else ():
            # Another run was to read all tables again, and died before it had a record.
            storage = storage_at(place)
            who = storage.who_was_here(place, counted=False)
            if who is not None and who.run_id != run.run_id and not who.is_running:
                storage.clear((place,), dry_run=False)
    return found


def complete(home: str, places: Sequence[str], observe: Observer) -> Completed | None:
    """Finish interrupted publications, as those runs are complete; return the last one."""
    found = None
    for found in storage_at(home).complete(*places):
        for text in found.messages:
            observe(Notice(text=text))
    return found
