"""The finished runs that lie at the places of a new one, which may replace them."""

from __future__ import annotations

from collections.abc import Sequence

from unloader.errors import OutputFailed
from unloader.storage.model import MANIFEST, Index, ReadIndex
from unloader.storage.objects.room import Room, is_plain


class EarlierRuns:
    """What stood at the places when they were taken, and what stands there now."""

    def __init__(self, rooms: Sequence[Room], read_index: ReadIndex) -> None:
        """Look at the places.

        Raises:
            OutputFailed: A manifest is damaged, or its run has files at other places, too.
            OSError: One cannot be read.
        """
        self._rooms = tuple(rooms)
        self._read_index = read_index
        self._before = self._runs()

    def names(self) -> list[set[str]]:
        """Return for each place the final names that go with earlier runs, manifests included.

        Raises:
            OutputFailed: A finished run has files at places that are not ours to replace.
            OSError: A manifest cannot be read.
        """
        found: list[set[str]] = [set() for _ in self._rooms]
        for home, index in zip(self._rooms, self._finished(), strict=True):
            if index is None:
                continue
            for number, place in enumerate(index.places):
                ours = next((n for n, each in enumerate(self._rooms) if each.is_same(place)), None)
                if ours is None and number:
                    raise OutputFailed(
                        f"the run in {home.name} also has files in {place}",
                        f"give both with --to to replace the run, or remove {home.name}/{MANIFEST}",
                    )
                # The first is where the manifest is, wherever it was when that was written.
                found[self._rooms.index(home) if ours is None else ours] |= {
                    name for at, name in index.files if at == number and is_plain(name)
                }
            found[self._rooms.index(home)].add(MANIFEST)
        return found

    def check_unchanged(self) -> None:
        """Check that no finished run has come since the start: nobody agreed to replace it.

        Raises:
            OutputFailed: One has.
            OSError: A manifest cannot be read.
        """
        for room, was, now in zip(self._rooms, self._before, self._runs(), strict=True):
            if now and now != was:
                raise OutputFailed(
                    f"another run ({now}) was published into {room.name} while this run was "
                    "writing, so nothing is published",
                    "move the other run to another place, then unload again",
                )

    def _runs(self) -> list[str]:
        return [index.run_id if index is not None else "" for index in self._finished()]

    def _finished(self) -> list[Index | None]:
        return [self._index(room) for room in self._rooms]

    def _index(self, room: Room) -> Index | None:
        try:
            data = room.bucket.read(room.final(MANIFEST))
        except FileNotFoundError:
            return None
        return self._read_index(data, room.name)
