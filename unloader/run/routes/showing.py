"""Where others see a run with several outputs, and can end it: in the directory of each."""

from __future__ import annotations

from collections.abc import Sequence

from unloader.storage.base import LiveStorage


class AllPlaces:
    """Several places as one; see `unloader.storage.base.LiveStorage`."""

    def __init__(self, storages: Sequence[LiveStorage]) -> None:
        """Take them; at least one."""
        self._storages = tuple(storages)

    def show(self, data: bytes) -> None:
        """Show it at each."""
        trouble = None
        for storage in self._storages:
            try:
                storage.show(data)
            except OSError as error:
                trouble = error
        if trouble is not None:
            raise trouble

    def marks(self) -> tuple[str, ...]:
        """Return those of all."""
        return tuple(mark for storage in self._storages for mark in storage.marks())

    def stop_asked(self) -> bool:
        """Tell whether somebody has asked at any of them."""
        return any(storage.stop_asked() for storage in self._storages)

    def wish(self) -> bytes:
        """Return what was asked at one of them."""
        return next(filter(None, (storage.wish() for storage in self._storages)), b"")
