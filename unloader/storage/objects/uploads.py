"""Uploads that are completed when a run is published, and those that dead processes have left.

S3 lists the uploads that were neither completed nor aborted, but not whose they are. Those below
`_run` are ours. Those to final names are told by what such names of a run are like, which is
written in its lock before the first of them is begun.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from unloader.storage.model import Claim
from unloader.storage.objects.room import Room
from writers.errors import WriteError
from writers.model import UncompletedUpload

if TYPE_CHECKING:
    from writers.objects.multipart import Pending

_THREADS = 16
"""Requests at once."""


class Completion(NamedTuple):
    """An upload that is to become an object."""

    upload: UncompletedUpload
    replaces: bool
    """An earlier run's object may be there."""


def uploads_to_final_names(claim: Claim, rooms: Sequence[Room]) -> bool:
    """Decide how the files of a run get their final names.

    True: a file is uploaded to its final name and the upload is completed when the run is
    published. False: it is staged as an object, and the store copies it then. The latter is for
    whatever is read before it is published, as nobody can read an upload; for Google and Azure,
    where nobody but who began an upload can complete it; and for a checksum that only obstore has.
    """
    return bool(claim.names) and all(
        room.location.scheme == "s3" and room.location.option("checksum") != "crc64nvme"
        for room in rooms
    )


def is_name_of(name: str, patterns: Collection[str]) -> bool:
    """Tell whether a final name is like one of these, in which `*` is any text."""
    return any(
        re.fullmatch(".*".join(map(re.escape, each.split("*"))), name, re.DOTALL)
        for each in patterns
    )


def left_uploads(room: Room, names: Collection[str]) -> list[Pending]:
    """Return the uploads at a place that were begun by us and not ended.

    Only S3 can tell them. Azure drops the parts of its own after a week, Google by a rule of the
    bucket.

    Args:
        room: Of the place.
        names: What final names are like whose uploads are ours.

    Raises:
        WriteError: The store refused.
    """
    if room.location.scheme != "s3":
        return []
    from writers.objects.multipart import pending_uploads

    found = pending_uploads(room.location.below("_run"))
    if names:
        found += [
            each
            for each in pending_uploads(room.location, deep=False)
            if is_name_of(each.key.removeprefix(room.location.prefix), names)
        ]
    return found


def abort_uploads(
    room: Room, names: Collection[str], *, kept: Collection[str] = (), dry_run: bool = False
) -> int:
    """Abort the uploads at a place that were begun by us and not ended, but those of these ids.

    Returns:
        How many there were.

    Raises:
        WriteError: The store refused.
    """
    found = [each for each in left_uploads(room, names) if each.id not in kept]
    if found and not dry_run:
        from writers.objects import multipart

        multipart.abort_uploads(room.location, found)
    return len(found)


def compare_upload(room: Room, upload: UncompletedUpload) -> None:
    """Compare the parts of an upload with those in the store.

    Raises:
        WriteError: They differ, it is not there any more, or the store refused.
    """
    from writers.objects.multipart import compare

    compare(room.location.below(upload.name), upload)


def ids_of_uploads(room: Room) -> set[str]:
    """Return the ids of all uploads to final names at a place.

    Raises:
        WriteError: The store refused.
    """
    from writers.objects.multipart import pending_uploads

    return {each.id for each in pending_uploads(room.location, deep=False)}


def get_ready(room: Room) -> None:
    """Load, in a thread of its own, what completes uploads in the end: that takes its time."""
    from writers.objects.multipart import get_ready

    def load() -> None:
        # What is wrong is told once it is needed.
        with suppress(WriteError):
            get_ready(room.location)

    threading.Thread(target=load, name="objects", daemon=True).start()


def complete_uploads(room: Room, completions: Sequence[Completion]) -> None:
    """Make objects of uploads, several at once; nothing happens to those that are objects already.

    Raises:
        FileNotFoundError: One is gone.
        FileExistsError: Another object has one's name.
        WriteError: The store refused or failed.
    """
    if not completions:
        return
    from writers.objects.multipart import complete

    def act(each: Completion) -> None:
        complete(room.location.below(each.upload.name), each.upload, replaces=each.replaces)

    _each(act, completions)


def _each(act: Callable[[Completion], None], items: Sequence[Completion]) -> None:
    with ThreadPoolExecutor(min(_THREADS, len(items)), thread_name_prefix="objects") as pool:
        waiting = [pool.submit(act, item) for item in items]
        try:
            for each in waiting:
                each.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
