"""Taking the places of all tables of a run.

A place in storage is taken before anything is read: all obstacles are reported together. The
directories of further tables are taken while the first tables are read, in a separate thread. So an
error there is the failure of one table. The record of the run is written in the same thread.
Nothing is published before the record is there: a run that is killed earlier has begun nothing that
a later process could not find.

A run over several tables also has a home: the directory around theirs, with the record, the status
and the manifest of the run. A single table's directory is its home.
"""

from __future__ import annotations

import os
import queue
import resource
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from unloader.errors import ConfigError, OutputFailed, UnloaderError
from unloader.events import Notice, Observer
from unloader.manifest.read import is_published, read_index
from unloader.model import TablesOptions
from unloader.nouns import counted
from unloader.placement.evidence import node_cpus
from unloader.resolve.places import is_dropped
from unloader.resolve.resolved import ResolvedTable, of_output
from unloader.resolve.run_record import first_of, record_of, recorded_tables
from unloader.retention.following import Following
from unloader.run.file_output import FileOutput, Left, left_of
from unloader.run.finishing import END_SECONDS, Ended
from unloader.run.history import History
from unloader.run.outputs import NullOutput, RunOutput, StreamOutput
from unloader.run.table import RunState, Table
from unloader.run.work import named
from unloader.selection.listing import TableProblem, one_error
from unloader.storage.place_names import KEPT, destination_kind, real
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import RUN_RECORD, Claim, LiveStorage, RunStorage
from writers.objects.location import is_location

TablePlaces = tuple[str, ...]
"""Where the outputs of a table go, which tells it from the other tables of a run."""

_NOTHING = Left(what="nothing")


class Home(Struct, kw_only=True):
    """Where the record, the status and the manifest of a run are."""

    state: RunState
    storage: RunStorage | None = None
    """The directory around several tables; None for a single table, or if all output is dropped."""
    abandoned: tuple[tuple[str, str], ...] = ()
    """Directories of a dead run whose home this run takes, each with the id of the dead run. The
    new run takes none of them, and nothing could resume the dead run, so they are cleared."""

    @classmethod
    def take(cls, state: RunState) -> Home:
        """Take the directory around several tables; `close` gives it back.

        The tables of a dead run may be read again at a new snapshot. Then the record of the dead
        run stays until the new run's record is written. So a kill between the two leaves a run that
        can be resumed.

        Raises:
            OutputFailed: Another run has it, or it holds a finished run that is not to be replaced.
        """
        resolved, place = state.resolved, state.home
        if state.is_single or is_dropped(place):
            return cls(state=state)

        def is_record_of_it(record: bytes) -> bool:
            try:
                return first_of(record, place).run_id == resolved.run_id
            except OutputFailed:
                return False

        abandoned = () if resolved.resumed_in else _abandoned_in(place, resolved.tables)
        storage = storage_at(place).take(
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
        return cls(state=state, storage=storage, abandoned=abandoned)

    def live(self) -> LiveStorage | None:
        """Return where others see the run and can end it; None if nothing is kept."""
        return self.state.tables[0].output.live() if self.state.is_single else self.storage

    def keep_record(self) -> None:
        """Record the work to do, without a session's statements: they may hold a password."""
        state = self.state
        output = state.tables[0].output if state.is_single else self.storage
        if output is None:
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
        output.keep(RUN_RECORD, record)
        for place, run_id in self.abandoned:
            with suppress(OSError, OutputFailed):
                storage = storage_at(place)
                who = storage.who_was_here(place, counted=False)
                if who is not None and who.run_id == run_id and not who.is_running:
                    storage.clear((place,), dry_run=False)
                    if not is_location(place):
                        os.rmdir(place)

    def close(self) -> None:
        """Give the directory back."""
        if self.storage is not None:
            self.storage.close()


def _abandoned_in(home: str, runs: Sequence[ResolvedTable]) -> tuple[tuple[str, str], ...]:
    """Return the directories of the dead run in a home that a new run does not take.

    Args:
        home: The directory of all tables.
        runs: Of the tables of the new run.
    """
    storage = storage_at(home)
    try:
        who = storage.who_was_here(home, counted=False)
        tables = recorded_tables(storage.record(home, RUN_RECORD), home) if who else ()
    except OSError:
        return ()  # It cannot be taken either.
    own = {real(place) for run in runs for place in run.directories}
    return tuple(
        (place, table.run_id)
        for table in tables
        for place in table.directories
        if real(place) not in own
    )


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


class Opening(Struct, frozen=True, kw_only=True):
    """Takes the directories of the tables; they are given back with `held`."""

    state: RunState
    following: Following
    held: ExitStack
    left: Mapping[TablePlaces, Left]
    """What an earlier process of the run has left of each table; empty for a new run."""
    later: dict[int, FileOutput] = field(default_factory=dict)
    """The outputs that are still to be taken, by the number of the table."""

    def take_all(self) -> None:
        """Take the directories of tables, and check all names, before anything is read.

        Directories that do not exist yet are left in `later`.

        Raises:
            UnloaderError: Some cannot be taken, and the run does not continue without them.
        """
        state = self.state
        problems = list(state.resolved.problems)
        missing: frozenset[str] = frozenset()
        if not state.is_single:
            allow_for(len(state.resolved.tables))
            if not state.resolved.resumed_in:
                # Of a run that is resumed, `left_of_tables` has done it.
                outputs = [output for run in state.resolved.tables for output in run.outputs]
                places = [place for each in outputs for place in each.options.destinations]
                _complete(state.home, places, state.live)
                missing = self._missing()
        for run in state.resolved.tables:
            here = run.directories
            later = bool(here) and all(place in missing for place in here)
            try:
                state.tables.append(self._opened(run, later=later))
            except UnloaderError as error:
                if state.is_single:
                    raise
                problems.append(TableProblem(table=run.extract.table.label, error=error))
        if problems and not (state.options.on_failure == "continue" and state.tables):
            is_new = not (state.resolved.resumed_in or state.options.replaces)
            raise one_error(problems, len(problems) + len(state.tables), goes_on=is_new)
        state.problems = problems

    def take_later(self, order: Iterable[int], record: Callable[[], None]) -> Taking:
        """Begin to take the other directories.

        Args:
            order: Numbers of tables as they are read; each may come several times.
            record: See `Taking`.
        """
        wanted = [number for number in dict.fromkeys(order) if number in self.later]
        return Taking([(self.state.tables[each], self.later[each]) for each in wanted], record)

    def begun(self, table: Table) -> UnloaderError | None:
        """Get ready for the units of a table whose directory was taken later; return why not."""
        try:
            table.output.begin(table.observe, self.state.stop)
        except UnloaderError as error:
            return error
        table.is_taken = True
        return None

    def _missing(self) -> frozenset[str]:
        """Return the directories of a new run that do not exist, and can be taken later."""
        if self.state.options.replaces:
            return frozenset()
        usual = [
            output.options.destinations
            for run in self.state.resolved.tables
            if len(run.outputs) == 1 and run.plan.units
            for output in run.outputs
            # Whether they can be given rights and owners is known once that is tried.
            if output.options.mode is None and not output.options.owner_group
            if destination_kind(output.options.destinations) in KEPT
        ]
        places = [place for places in usual for place in places]
        return storage_at(self.state.home).missing(places) if places else frozenset()

    def _opened(self, run: ResolvedTable, *, later: bool) -> Table:
        """Return a table with its directory taken, or with its manifest if it is complete.

        Args:
            run: Of the table.
            later: Leave its directory to be taken later.
        """
        state, left = self.state, self.left.get(places_of(run), _NOTHING)
        run = self._replacing(run)
        resumed = left.what == "units"
        number, home = len(state.tables), "" if state.is_single else state.home
        if left.what == "all":
            output: RunOutput = NullOutput(run)
        elif later:
            output = self.later[number] = FileOutput(run, home=home)
        else:
            output = open_output(run, resumed=resumed, home=home)
        # A table that is published gives its files back then: there may be thousands.
        own = ExitStack()
        own.callback(output.close)
        self.held.callback(own.close)
        name = run.extract.table.label
        cpus = node_cpus(run.topology) if state.is_single else {}
        table = Table(
            number=number,
            run=run,
            state=state,
            output=output,
            observe=state.live if state.is_single else named(state.live, name),
            history=History(began=state.resolved.started, cpus=cpus),
            resumed=resumed,
            is_taken=not later,
            manifests=left.manifests,
            release=own.close,
        )
        table.then = lambda manifest: self.following.after(run, manifest, table.observe)
        if not later:
            try:
                output.begin(table.observe, state.stop)
            except BaseException:
                with suppress(UnloaderError, OSError):
                    output.abandon((), None)
                own.close()
                raise
        for each in left.manifests:
            # The process that published it may have been killed before this.
            table.then(each)
        return table

    def _replacing(self, run: ResolvedTable) -> ResolvedTable:
        """Return a table that may replace the published files of the run that this one replaces."""
        outputs, earlier = [], self.state.options.replaces
        if not earlier:
            return run
        for output in run.outputs:
            place = output.options.destination
            if any(is_published(storage_at(place), place, each) for each in earlier):
                output = replace(output, options=replace(output.options, overwrite=True))
            outputs.append(output)
        return replace(run, outputs=tuple(outputs))


def open_output(run: ResolvedTable, *, resumed: bool, home: str) -> RunOutput:
    """Take the destination of a table; the caller closes it.

    Args:
        run: The run to write.
        resumed: An earlier process of the run has begun the output.
        home: See `Claim.home`.

    Raises:
        OutputFailed: It cannot be opened, or a file name is too long.
        UsageError: It does not fit the plan.
    """
    if len(run.outputs) == 1:
        return _open_one(of_output(run, 0), resumed, home=home)
    from unloader.run.route_outputs import RouteOutputs

    open_one = partial(_open_one, home=home)
    return RouteOutputs(run, open_one, resumed=resumed, one_of_many=bool(home))


def _open_one(run: ResolvedTable, resumed: bool, *, home: str) -> RunOutput:
    kind = destination_kind(run.output.options.destinations)
    if kind in KEPT:
        output = FileOutput(run, resumed=resumed, home=home)
        output.take()
        return output
    return NullOutput(run) if kind == "null" else StreamOutput(run, pipe=kind == "pipe")


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

    Args:
        runs: Of the tables.
        home: The directory of the run as a whole.
        observe: Gets a notice on each publication that is completed.

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


_BEFORE_RECORD = 64
"""Guess: this number of tables gives all workers work while the record is made."""


class Later(Protocol):
    """An output whose places are taken by a separate call."""

    def take(self) -> None:
        """Take them.

        Raises:
            OutputFailed: One cannot be taken.
        """


class Taking:
    """Takes the directories of tables in their order; `collect` returns what became of them."""

    def __init__(self, outputs: Sequence[tuple[Table, Later]], record: Callable[[], None]) -> None:
        """Begin.

        Args:
            outputs: Those to be taken, in the order in which they are wanted.
            record: Puts the run on record; called once, in the thread if there is one.
        """
        self._outputs = outputs
        self._record = record
        self._ended: queue.SimpleQueue[Ended | BaseException | None] = queue.SimpleQueue()
        self._is_to_end = threading.Event()
        self.is_busy = True
        """Whether there is anything that `collect` has not returned yet."""
        self.is_recorded = False
        """Whether the run was on record when `collect` was last called."""
        self._thread = threading.Thread(target=self._take_all, name="taking", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # The system refuses any thread: then it is done here.
            self._take_all()

    def collect(self, timeout_seconds: float = 0.0) -> list[Ended]:
        """Return the tables taken since the last call, and the errors of the others.

        Args:
            timeout_seconds: Wait this long for the first news.

        Raises:
            BaseException: The run could not be put on record.
        """
        found: list[Ended] = []
        wait = timeout_seconds
        while self.is_busy:
            try:
                ended = self._ended.get(timeout=wait) if wait else self._ended.get_nowait()
            except queue.Empty:
                break
            wait = 0.0
            if isinstance(ended, tuple):
                found.append(ended)
            elif ended is None:
                self.is_busy = not self.is_recorded
                self.is_recorded = True
            else:
                raise ended
        return found

    def close(self) -> None:
        """Take no further directory; wait for the one in hand up to a server's time limit."""
        self._is_to_end.set()
        if self._thread.ident is not None:
            self._thread.join(END_SECONDS)

    def _take_all(self) -> None:
        for table, output in self._outputs[:_BEFORE_RECORD]:
            self._take(table, output)
        if self._is_to_end.is_set():
            return
        try:
            self._record()
        except BaseException as error:
            self._ended.put(error)
            return
        self._ended.put(None)
        for table, output in self._outputs[_BEFORE_RECORD:]:
            self._take(table, output)
        self._ended.put(None)

    def _take(self, table: Table, output: Later) -> None:
        if self._is_to_end.is_set():
            return
        try:
            output.take()
        except BaseException as error:
            self._ended.put((table, error))
        else:
            self._ended.put((table, None))
