"""The directory that those of all tables of a run are in: its record, its status, its manifest."""

from __future__ import annotations

from unloader.errors import OutputFailed
from unloader.manifest.read import read_index
from unloader.model import TablesOptions
from unloader.resolve.tables.broken import first_of_tables
from unloader.storage.base import RunStorage
from unloader.storage.model import Claim
from unloader.storage.opening import storage_at


def take_home(place: str, run_id: str, options: TablesOptions, *, resumed: bool) -> RunStorage:
    """Take the directory; the caller closes it.

    Where a run that has died is read again at a new snapshot, its record stays until that of the
    new run is written: a kill between the two leaves what can be gone on with.

    Raises:
        OutputFailed: Another run has it, or it holds a finished run that is not to be replaced.
    """

    def is_of_it(record: bytes) -> bool:
        try:
            return first_of_tables(record, place).run_id == run_id
        except OutputFailed:
            return False

    return storage_at(place).take(
        Claim(
            places=(place,),
            run_id=run_id,
            overwrite=options.overwrite,
            read_index=read_index,
            resumed=resumed,
            is_record_of_it=is_of_it,
            keeps_record=bool(options.replaces),
            shared=True,
        )
    )
