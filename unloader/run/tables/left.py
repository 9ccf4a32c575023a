"""What an earlier process of a run has left of each of its tables: looked at once for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unloader.events import Notice, Observer
from unloader.resolve.resolved import ResolvedRun
from unloader.run.outputs.left import Left, left_of
from unloader.storage.opening import storage_at

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
