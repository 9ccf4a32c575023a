"""The places of all tables of a run, and what lies in them.

Those at which something lies are taken before anything is read, so that all that is in the way is
told at once. The others may be taken while the first tables are read; see `taking`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from contextlib import ExitStack
from typing import cast

from msgspec import Struct, field
from msgspec.structs import replace

from unloader.errors import UnloaderError
from unloader.events import Notice, PhaseStarted, UnitsKept
from unloader.manifest.routes import totals_of
from unloader.placement.load import node_cpus
from unloader.resolve.resolution import OpenRun
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.tables.problems import TableProblem, told_at_once
from unloader.run.ceilings import ceilings_of
from unloader.run.history import History
from unloader.run.outputs.base import RunOutput
from unloader.run.outputs.files import FileOutput
from unloader.run.outputs.left import Left
from unloader.run.outputs.null import NullOutput
from unloader.run.outputs.opening import open_output
from unloader.run.table_run import Circumstances, TableRun
from unloader.run.tables.counting import Counting
from unloader.run.tables.finishing import SharedCatalog
from unloader.run.tables.following import Following
from unloader.run.tables.left import TablePlaces, places_of
from unloader.run.tables.open_files import allow_for
from unloader.run.tables.state import RunState, TableState
from unloader.run.tables.taking import Taking
from unloader.run.tables.units import named
from unloader.sources.base import Catalog
from unloader.status.tables import is_published
from unloader.storage.kinds import KEPT, destination_kind
from unloader.storage.opening import storage_at

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
            results = [unit.result for unit in table.run.finished.values()]
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
