"""The finished runs at the places of a new run: when the places were taken, and now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from unloader.errors import OutputFailed
from unloader.storage.place_names import real
from unloader.storage.storage_protocol import MANIFEST, RUN, Index, ReadIndex, Storage
from writers.objects.location import below


def not_free(place: str, names: Collection[str], *, shared: bool = False) -> OutputFailed | None:
    """Return the error for a place with anything except leftovers of dead runs, else None.

    `names` are of everything at the place. In a shared place only a finished run is an error.
    """
    others = sorted({*names} - {RUN})
    finished = MANIFEST in others
    if not others or (shared and not finished):
        return None
    what = "a finished run" if finished else f"{others[0]} and possibly other files"
    return OutputFailed(
        f"{place} is not empty: it holds {what}",
        "choose an empty place with --to, or replace an earlier run with --overwrite",
    )


class EarlierRuns:
    """The finished runs at the places of a run.

    Raises:
        OutputFailed: A manifest is damaged, or its run also has files at other places.
    """

    def __init__(self, storage: Storage, places: Sequence[str], read_index: ReadIndex) -> None:
        self._storage, self._places, self._read_index = storage, tuple(places), read_index
        self.files: list[set[str]] = []
        """For each place the names of the files of finished runs."""
        self.replaced: list[set[str]] = []
        """The same names, and the names of manifests."""
        self._run_ids: list[str] = []
        self._look()

    def _look(self) -> None:
        self.files = [set() for _ in self._places]
        finished: list[Index | None] = []
        for place in self._places:
            try:
                data = self._storage.read(place, MANIFEST)
            except FileNotFoundError:
                finished.append(None)
            except OSError as error:
                raise OutputFailed(
                    f"{below(place, MANIFEST)} cannot be read: {error.strerror or error}",
                    "restore it and check its permissions, or unload again to another place",
                ) from error
            else:
                finished.append(self._read_index(data, place))
        self._run_ids = ["" if index is None else index.run_id for index in finished]
        known: dict[str, int] = {}
        for home, index in zip(self._places, finished, strict=True):
            if index is None:
                continue
            known = known or {real(each): number for number, each in enumerate(self._places)}
            for at, place in enumerate(index.places):
                number = known.get(real(place))
                if number is None:
                    raise OutputFailed(
                        f"the run in {home} also has files in {place}",
                        "give both with --to to replace the run, or remove "
                        f"{below(home, MANIFEST)}",
                    )
                with suppress(FileNotFoundError):
                    # A manifest that another program has changed may not lead out of the place.
                    there = set(self._storage.names(self._places[number]))
                    self.files[number] |= {name for n, name in index.files if n == at} & there
        self.replaced = [
            names if index is None else names | {MANIFEST}
            for index, names in zip(finished, self.files, strict=True)
        ]

    def check_unchanged(self) -> None:
        """Look again; check that no run was published: the user did not agree to replace it."""
        files, run_ids = self.files, self._run_ids
        self._look()
        for number, (place, run_id) in enumerate(zip(self._places, self._run_ids, strict=True)):
            if (run_id and run_id != run_ids[number]) or self.files[number] - files[number]:
                raise OutputFailed(
                    f"another run ({run_id}) was published into {place} while this run was "
                    "writing, so nothing is published",
                    "move the other run to another place, then unload again; the files of this "
                    f"run are in {below(place, RUN)}",
                )
