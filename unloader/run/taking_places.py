"""Taking the places of all tables of a run, and what lies in them.

Where something lies, a place is taken before anything is read: all that is in the way is reported
together. The directories of further tables are taken while the first tables are read, in a thread
of their own. So an error there is the failure of one table. The record of the run is written in the
same thread. Before it is there nothing is published: a run that is killed earlier has begun nothing
that a later process could not find.
"""

from __future__ import annotations

import queue
import resource
import threading
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct, field
from msgspec.structs import replace

from unloader.errors import ConfigError, UnloaderError
from unloader.events import Notice, Observer, PhaseStarted, UnitsKept
from unloader.manifest.model import totals_of
from unloader.manifest.read import is_published
from unloader.model import Request
from unloader.nouns import counted
from unloader.placement.observation import node_cpus
from unloader.resolve.outputs.one import of_output
from unloader.resolve.resolution import OpenRun
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.tables.problems import TableProblem, told_at_once
from unloader.run.finishing import END_SECONDS, Ended, SharedCatalog
from unloader.run.following import Following
from unloader.run.history import History
from unloader.run.outputs.base import RunOutput
from unloader.run.outputs.files import FileOutput
from unloader.run.outputs.left import Left, left_of
from unloader.run.outputs.null import NullOutput
from unloader.run.outputs.one_stream import StreamOutput
from unloader.run.state import RunState, TableState
from unloader.run.table_run import Circumstances, TableRun
from unloader.run.telling import Counting
from unloader.run.work import named
from unloader.sources.base import Catalog
from unloader.storage.kinds import KEPT, destination_kind
from unloader.storage.opening import storage_at

if TYPE_CHECKING:
    from unloader.tuning.ceiling_records import Ceilings


_NOTHING = Left(what="nothing")


class Opening(Struct, frozen=True, kw_only=True):
    """Takes the directories of the tables; they are given back with `held`."""

    state: RunState
    catalog: SharedCatalog
    following: Following
    held: ExitStack
    left: Mapping[TablePlaces, Left]
    """What an earlier process of the run has left of each table; empty for a new run."""
    later: dict[int, FileOutput] = field(default_factory=dict)
    """The outputs that are still to be taken, by the number of the table."""

    def take_all(self) -> Counting:
        """Take the directories of tables, and check all names, before anything is read.

        Those where nothing lies are left in `later`.

        Raises:
            UnloaderError: Some cannot be taken, and the others are not to go on without them.
        """
        state = self.state
        if state.alone is not None:
            self._take_alone(state.alone)
            return Counting(state.tables, 0)
        problems = list(state.resolved.problems)
        allow_for(len(state.resolved.runs))
        self._complete()
        missing = self._missing()
        for run in state.resolved.runs:
            name = run.extract.table.label
            try:
                table = self._opened(run, later=_all_in(run.directories, missing))
            except UnloaderError as error:
                problems.append(TableProblem(table=name, error=error))
            else:
                state.tables.append(table)
        if problems and not (state.options.on_failure == "continue" and state.tables):
            anew = not (state.resolved.resumed_in or state.options.replaces)
            raise told_at_once(problems, len(problems) + len(state.tables), goes_on=anew)
        state.problems = problems
        return Counting(state.tables, len(problems))

    def _take_alone(self, resolved: OpenRun) -> None:
        """Take the places of the only table, where others can look at the run."""
        state, run = self.state, resolved.run
        output = open_output(run, resolved.resumed_in)
        self.held.callback(output.close)
        live = output.live()
        if live is not None:
            state.live.record_in(live)
            self.held.callback(state.live.close)
        table = TableRun(
            resolved=resolved,
            output=output,
            observe=state.live,
            around=Circumstances(
                history=History(began=resolved.started, cpus=node_cpus(run.topology)),
                ceilings=ceilings_of(run.request, state.live),
            ),
            then=lambda manifest: self.following.after(run, manifest, state.live),
        )
        # Known before it begins: what it has made is removed if it cannot begin.
        state.tables.append(TableState(number=0, run=table))
        output.begin(state.live, state.stop)

    def take_later(self, order: Iterable[int], record: Callable[[], None]) -> Taking:
        """Begin to take the other directories.

        Args:
            order: Numbers of tables as they are read; each may come several times.
            record: See `Taking`.
        """
        wanted = [number for number in dict.fromkeys(order) if number in self.later]
        return Taking([(self.state.tables[each], self.later[each]) for each in wanted], record)

    def begun(self, table: TableState) -> UnloaderError | None:
        """Get ready for the units of a table whose directory was taken later; return why not."""
        try:
            table.run.output.begin(table.run.observe, self.state.stop)
        except UnloaderError as error:
            return error
        table.is_taken = True
        return None

    def _complete(self) -> None:
        """Bring publications of earlier runs that were cut short to their end.

        Of a run that is gone on with they are: see `left_of_tables`.
        """
        if self.state.resolved.resumed_in:
            return
        outputs = [output for run in self.state.resolved.runs for output in run.outputs]
        places = [place for output in outputs for place in output.options.destinations]
        for each in storage_at(self.state.home).complete_all(places):
            for text in each.messages:
                self.state.live(Notice(text=text))

    def _missing(self) -> frozenset[str]:
        """Return the directories that can be taken later: of a new run, where nothing lies."""
        if self.state.resolved.resumed_in or self.state.options.replaces:
            return frozenset()
        usual = [
            output.options.destinations
            for run in self.state.resolved.runs
            if len(run.outputs) == 1 and run.plan.units
            for output in run.outputs
            # Whether they can be given rights and owners is known once that is tried.
            if output.options.mode is None and not output.options.owner_group
            if destination_kind(output.options.destinations) in KEPT
        ]
        places = [place for places in usual for place in places]
        return storage_at(self.state.home).missing(places) if places else frozenset()

    def _opened(self, run: ResolvedRun, *, later: bool) -> TableState:
        """Return a table with its directory taken, or with its manifest if it is complete.

        Args:
            run: Of the table.
            later: Leave its directory to be taken later.
        """
        left = self.left.get(places_of(run), _NOTHING)
        run = self._replacing(run)
        resumed_in = run.output.options.destinations if left.what == "units" else ()
        number = len(self.state.tables)
        if left.what == "all":
            output: RunOutput = NullOutput(run)
        elif later:
            output = self.later[number] = FileOutput(run, home=self.state.home)
        else:
            output = open_output(run, resumed_in, home=self.state.home)
        # A table that is published gives its files back at once: there may be thousands.
        own = ExitStack()
        own.callback(output.close)
        self.held.callback(own.close)
        observe = named(self.state.live, run.extract.table.label)
        if not later:
            output.begin(observe, self.state.stop)
        catalog = cast(Catalog, self.catalog)
        started = self.state.resolved.started
        opened = TableRun(
            resolved=OpenRun(run=run, catalog=catalog, started=started, resumed_in=resumed_in),
            output=output,
            observe=observe,
            around=Circumstances(history=History(began=started)),
        )
        opened.then = lambda manifest: self.following.after(run, manifest, opened.observe)
        for each in left.manifests:
            # The process that published it may have been killed before this.
            opened.then(each)
        opened.manifests = left.manifests
        manifest = opened.manifests[0] if opened.manifests else None
        return TableState(
            number=number, run=opened, manifest=manifest, release=own.close, is_taken=not later
        )

    def _replacing(self, run: ResolvedRun) -> ResolvedRun:
        """Return a table that may replace what a run has published in whose place this one is."""
        outputs, earlier = [], self.state.options.replaces
        if not earlier:
            return run
        for output in run.outputs:
            place = output.options.destination
            if any(is_published(storage_at(place), place, each) for each in earlier):
                output = replace(output, options=replace(output.options, overwrite=True))
            outputs.append(output)
        return replace(run, outputs=tuple(outputs))


def _all_in(places: Collection[str], missing: Container[str]) -> bool:
    """Return whether all places, of which there are some, are among those."""
    return bool(places) and all(place in missing for place in places)


def take_up(state: RunState, counting: Counting) -> None:
    """Confirm what an earlier process of the run has done."""
    if not state.resolved.resumed_in:
        return
    if state.alone is not None:
        state.tables[0].before = state.tables[0].run.take_up(state.stop)
        return
    state.live(PhaseStarted(phase="confirming"))
    rows = size = units = 0
    for table in state.tables:
        if table.manifest is None:
            table.before = table.run.take_up(state.stop)
            results = table.run.finished.values()
            units += len(results)
            rows += sum(each.rows for each in results)
            size += sum(file.bytes for each in results for file in each.files)
        else:
            units += len(table.units)
            totals = totals_of(table.run.manifests)
            rows += totals.rows
            size += totals.bytes
    done = counting.now.done
    state.live(UnitsKept(units=units, rows=rows, bytes=size, tables=done))


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


TablePlaces = tuple[str, ...]
"""Where the outputs of a table go, which tells it from the other tables of a run."""


def places_of(run: ResolvedRun) -> TablePlaces:
    """Return what `left_of_tables` knows a table by."""
    return tuple(output.options.destination for output in run.outputs)


def left_of_tables(
    runs: Iterable[ResolvedRun], home: str, observe: Observer
) -> Mapping[TablePlaces, Left]:
    """Return what is left of each table; publications that were cut short are at their end then.

    Args:
        runs: Of the tables.
        home: The directory of the run as a whole.
        observe: Gets a notice on each publication that is completed.

    Raises:
        OutputFailed: A directory cannot be read, or a publication not be finished.
    """
    listed = tuple(runs)
    places = [place for run in listed for place in run.directories]
    for each in storage_at(home).complete_all(places):
        for text in each.messages:
            observe(Notice(text=text))
    found = {places_of(run): left_of(run) for run in listed}
    for run in listed:
        if found[places_of(run)].what == "all":
            _clear_of_others(run)
    return found


def _clear_of_others(run: ResolvedRun) -> None:
    """Remove what another run has left in the directories of a table that is published.

    That one was to read all tables again, and died before it had a record of its own.
    """
    for place in run.directories:
        storage = storage_at(place)
        who = storage.who_was_here(place, counted=False)
        if who is not None and who.run_id != run.run_id and not who.is_running:
            storage.clear((place,), dry_run=False)


_BEFORE_RECORD = 64
"""Guess: so many tables are work for all workers while the record is made, which takes as long."""


class Later(Protocol):
    """An output whose places are taken by a call of their own."""

    def take(self) -> None:
        """Take them.

        Raises:
            OutputFailed: One cannot be taken.
        """


class Taking:
    """Takes the directories of tables in their order; what has become of them is asked for."""

    def __init__(
        self, outputs: Sequence[tuple[TableState, Later]], record: Callable[[], None]
    ) -> None:
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
        """Return the tables that are taken since, and what went wrong with those that are not.

        Args:
            timeout_seconds: Wait so long for the first news.

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
        """Take no further directory; wait for the one in hand, for as long as a server may take."""
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

    def _take(self, table: TableState, output: Later) -> None:
        if self._is_to_end.is_set():
            return
        try:
            output.take()
        except BaseException as error:
            self._ended.put((table, error))
        else:
            self._ended.put((table, None))


def check_ceilings(request: Request) -> None:
    """Check that the file can be used, if the request names one.

    Raises:
        ConfigError: It cannot.
    """
    if request.ceilings is not None:
        from unloader.tuning.ceiling_records import read_ceilings

        read_ceilings(Path(request.ceilings))


def ceilings_of(request: Request, observe: Observer) -> Ceilings | None:
    """Return the ceilings of a request; None without any, or where the file has gone since.

    A run that is resumed must not fail for want of them.
    """
    if request.ceilings is None:
        return None
    from unloader.tuning.ceiling_records import read_ceilings

    try:
        return read_ceilings(Path(request.ceilings))
    except ConfigError as error:
        observe(Notice(text=f"the run is not compared with the ceilings: {error.message}"))
        return None


def open_output(run: ResolvedRun, resumed_in: tuple[str, ...] = (), *, home: str = "") -> RunOutput:
    """Take the destination of a run; the caller closes it.

    Args:
        run: What is to be written.
        resumed_in: The places where a broken run of the same id is gone on with; empty for none.
        home: See `Claim.home`.

    Raises:
        OutputFailed: It cannot be opened.
        UsageError: It does not go with the plan.
        OutputFailed: A file name is too long.
    """
    if len(run.outputs) == 1:
        return _open_one(of_output(run, 0), resumed_in, home=home)
    from unloader.run.routes.outputs import RouteOutputs

    open_one = partial(_open_one, home=home)
    return RouteOutputs(run, open_one, resumed=bool(resumed_in), one_of_many=bool(home))


def _open_one(run: ResolvedRun, resumed_in: tuple[str, ...], *, home: str) -> RunOutput:
    kind = destination_kind(run.output.options.destinations)
    if kind in KEPT:
        output = FileOutput(run, resumed_in, home=home)
        output.take()
        return output
    if kind == "null":
        return NullOutput(run)
    return StreamOutput(run, pipe=kind == "pipe")
