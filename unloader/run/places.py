"""Taking the places of all tables of a run.

All places are taken before anything is read, and all obstacles are reported together.

A run over several tables also has a home: the directory around theirs, with the record, the status
and the manifest of the run. A single table's directory is its home.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress

from msgspec.structs import replace

from unloader.errors import ConfigError, OutputFailed, UnloaderError
from unloader.events import Notice, Observer
from unloader.manifest.model import Manifest
from unloader.manifest.read import is_published, read_index
from unloader.model import TablesOptions
from unloader.nouns import counted
from unloader.resolve.places import is_dropped
from unloader.resolve.resolved import ResolvedTable, of_output
from unloader.resolve.run_record import first_of, record_of, recorded_tables
from unloader.retention.following import Following
from unloader.run.file_output import FileOutput, Left, left_of
from unloader.run.history import History
from unloader.run.outputs import NullOutput, RunOutput, StreamOutput
from unloader.run.table import RunState, Table
from unloader.selection.listing import TableProblem, one_error
from unloader.storage.place_names import KEPT, destination_kind, real
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import RUN_RECORD, Claim, RunStorage
from writers.objects.location import is_location

TablePlaces = tuple[str, ...]
"""Where the outputs of a table go, which tells it from the other tables of a run."""


class Home:
    """Where the record, the status and the manifest of a run are.

    The tables of a dead run may be read again at a new snapshot. Then the record of the dead run
    stays until the new run's record is written. So a kill between the two leaves a run that can be
    resumed.
    """

    def __init__(self, state: RunState) -> None:
        """Take the directory around several tables; `close` gives it back.

        Raises:
            OutputFailed: Another run has it, or it holds a finished run that is not to be replaced.
        """
        self.state = state
        self.storage: RunStorage | None = None
        """The directory around several tables; None for one table, or if all output is dropped."""
        self._abandoned: list[tuple[str, str]] = []
        """Directories of a dead run whose home this run takes, each with the id of the dead run.
        The new run takes none of them, and nothing could resume the dead run, so they are cleared.
        """
        resolved, place = state.resolved, state.home
        if state.is_single or is_dropped(place):
            return
        storage = storage_at(place)
        if not resolved.resumed_in:
            own = {real(each) for run in resolved.tables for each in run.directories}
            with suppress(OSError):  # Then it cannot be taken either.
                who = storage.who_was_here(place, counted=False)
                record = storage.record(place, RUN_RECORD) if who else b""
                self._abandoned = [
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

        self.storage = storage.take(
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

    def keep_record(self) -> None:
        """Record the work to do, without a session's statements: they may hold a password."""
        state = self.state
        keeper = state.tables[0] if state.is_single else self.storage
        if keeper is None:
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
        keeper.keep(RUN_RECORD, record)
        for place, run_id in self._abandoned:
            with suppress(OSError, OutputFailed):
                storage = storage_at(place)
                who = storage.who_was_here(place, counted=False)
                if who is not None and who.run_id == run_id and not who.is_running:
                    storage.clear((place,), dry_run=False)
                    if not is_location(place):
                        os.rmdir(place)


def with_what_it_replaces(options: TablesOptions, home: str) -> TablesOptions:
    """Return the options with the broken runs that the run replaces.

    With `{run_id}` or on another day the run has its own directory and replaces nothing.
    """
    if not options.replaces or options.home or is_dropped(home):
        return options
    with suppress(OSError, OutputFailed):
        record = storage_at(home).record(home, RUN_RECORD)
        if first_of(record, home).run_id in options.replaces:
            return options
    return replace(options, replaces=())


def take_tables(
    state: RunState, following: Following, held: ExitStack, left: Mapping[TablePlaces, Left]
) -> None:
    """Take the directories of the tables, and check all names, before anything is read.

    Args:
        state: Gets the tables, and the problems of the tables that are left out.
        following: Takes the manifest of each published table.
        held: Gives the directories back.
        left: What an earlier process of the run has left of each table; empty for a new run.

    Raises:
        UnloaderError: Some cannot be taken, and the run does not continue without them.
    """
    runs, options, resumed = state.resolved.tables, state.options, state.resolved.resumed_in
    problems = list(state.resolved.problems)
    if not state.is_single:
        allow_for(len(runs))
    # Of a run that is resumed, `left_of_tables` has completed the publications.
    if not (state.is_single or resumed):
        every = [output.options for run in runs for output in run.outputs]
        _complete(state.home, [place for each in every for place in each.destinations], state.live)
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
    found = left.get(places_of(run), Left(what="nothing", outputs=(False,) * len(run.outputs)))
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
        for number, begun in enumerate(found.outputs):
            own_run, route = of_output(run, number), ""
            if len(run.outputs) > 1:
                route = (run.request.routes or ())[number].name
            kind = destination_kind(own_run.output.options.destinations)
            output: RunOutput
            if isinstance(begun, Manifest) or found.what == "all" or kind == "null":
                output = NullOutput(own_run, number, route)
                output.manifest = begun if isinstance(begun, Manifest) else None
            elif kind not in KEPT:
                output = StreamOutput(own_run, pipe=kind == "pipe")
            else:
                home = "" if state.is_single else state.home
                output = FileOutput(own_run, number, route, resumed=begun, home=home)
            own.callback(output.close)
            opened.append(output)
        table = Table(
            number=len(state.tables),
            run=run,
            state=state,
            outputs=opened,
            observe=state.observer_of(run, state.live),
            history=History(
                began=state.resolved.started,
                cpus={node.id: node.cpus for node in nodes if node.cpus},
            ),
            resumed=found.what == "units",
            is_published=found.what == "all",
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
    for output in opened if table.is_published else ():
        if output.manifest is not None:
            # The process that published it may have been killed before this.
            table.then(output.run, output.manifest)
    return table


_OTHERS = 256
"""Pipes to workers, sockets, libraries: far more than a run has."""

_PUBLISHED = 320
"""About as many as the tables have open that are being published; see
`unloader.run.finishing`."""


def allow_for(tables: int) -> None:
    """Raise the limit of open files of this process as far as a run over tables needs it.

    Each table has its lock open, and from its first unit until it is published its journal. The
    limit that is raised is the soft one, which protects old programs; usually it is 1024.

    Raises:
        ConfigError: The hard limit, which only an administrator can raise, is too low.
    """
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
    """Return what `left_of_tables` knows a table by."""
    return tuple(output.options.destination for output in run.outputs)


def left_of_tables(
    runs: Iterable[ResolvedTable], home: str, observe: Observer
) -> Mapping[TablePlaces, Left]:
    """Return the remains of each table, once interrupted publications are completed.

    Raises:
        OutputFailed: A directory cannot be read, or a publication cannot be completed.
    """
    listed = tuple(runs)
    _complete(home, [place for run in listed for place in run.directories], observe)
    found = {places_of(run): left_of(run) for run in listed}
    for run in listed:
        for place in run.directories if found[places_of(run)].what == "all" else ():
            # Another run was to read all tables again, and died before it had a record.
            storage = storage_at(place)
            who = storage.who_was_here(place, counted=False)
            if who is not None and who.run_id != run.run_id and not who.is_running:
                storage.clear((place,), dry_run=False)
    return found


def _complete(home: str, places: Sequence[str], observe: Observer) -> None:
    for each in storage_at(home).complete(*places):
        for text in each.messages:
            observe(Notice(text=text))
