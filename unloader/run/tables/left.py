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
    return {places_of(run): left_of(run) for run in listed}
