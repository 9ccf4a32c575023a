"""The directories of all tables of a run: taken before anything is read, and what lies in them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import cast

from unloader.errors import UnloaderError
from unloader.events import Notice, PhaseStarted, UnitsKept
from unloader.manifest.routes import totals_of
from unloader.resolve.resolution import OpenRun
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.tables.problems import TableProblem, told_at_once
from unloader.run.history import History
from unloader.run.outputs.base import RunOutput
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
from unloader.run.tables.units import named
from unloader.sources.base import Catalog
from unloader.status.tables import is_published
from unloader.storage.opening import storage_at
from writers.records import dataclass, replace

_NOTHING = Left(what="nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Takes the directories of the tables; they are given back with `held`."""

    state: RunState
    catalog: SharedCatalog
    following: Following
    held: ExitStack
    left: Mapping[TablePlaces, Left]
    """What an earlier process of the run has left of each table; empty for a new run."""

    def take_all(self) -> Counting:
        """Take the directory of each table, and check all names, before anything is read.

        Raises:
            UnloaderError: Some cannot be taken, and the others are not to go on without them.
        """
        state = self.state
        problems = list(state.resolved.problems)
        allow_for(len(state.resolved.runs))
        self._complete()
        for run in state.resolved.runs:
            name = run.extract.table.label
            try:
                table = self._opened(run)
            except UnloaderError as error:
                problems.append(TableProblem(table=name, error=error))
            else:
                state.tables.append(table)
        if problems and not (state.options.on_failure == "continue" and state.tables):
            anew = not (state.resolved.resumed_in or state.options.replaces)
            raise told_at_once(problems, len(problems) + len(state.tables), goes_on=anew)
        state.problems = problems
        return Counting(state.tables, len(problems))

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

    def _opened(self, run: ResolvedRun) -> TableState:
        """Return a table with its directory taken, or with its manifest if it is complete."""
        left = self.left.get(places_of(run), _NOTHING)
        run = self._replacing(run)
        resumed_in = run.output.options.destinations if left.what == "units" else ()
        if left.what == "all":
            output: RunOutput = NullOutput(run)
        else:
            output = open_output(run, resumed_in, home=self.state.home)
        # A table that is published gives its files back at once: there may be thousands.
        own = ExitStack()
        own.callback(output.close)
        self.held.callback(own.close)
        observe = named(self.state.live, run.extract.table.label)
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
            number=len(self.state.tables), run=opened, manifest=manifest, release=own.close
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


def take_up(state: RunState, counting: Counting) -> None:
    """Confirm what an earlier process of the run has done."""
    if not state.resolved.resumed_in:
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
