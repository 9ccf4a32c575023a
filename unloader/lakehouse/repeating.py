"""A commit that is tried again while others are faster."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from unloader.errors import OutputFailed
from unloader.lakehouse.model import Commit, Committed

_TRIES = 50
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 2.0


def committed_once(commit: Commit, attempt: Callable[[], Committed | None]) -> Committed:
    """Try until it is done.

    Args:
        commit: What is to be done, for messages.
        attempt: Looks whether the run is part of the table, and commits it if not. It returns None,
            and has changed nothing, where another commit was faster.

    Raises:
        OutputFailed: Others were faster each time; or as `attempt`.
    """
    for number in range(_TRIES):
        done = attempt()
        if done is not None:
            return done
        # Not all at the same moment: those that met once would meet again.
        time.sleep(random.random() * min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**number))
    raise OutputFailed(
        f"other programs changed {commit.table.name} during each of the {_TRIES} attempts to "
        f"commit run {commit.run_id}",
        "commit it when fewer programs write to the table",
    )
