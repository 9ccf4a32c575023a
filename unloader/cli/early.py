"""What is begun before the arguments are read, as it takes longer than that."""

from __future__ import annotations

import os

TYPE_CHECKING = False
"""As in `typing`, which costs milliseconds."""

if TYPE_CHECKING:
    from collections.abc import Sequence


def begin(arguments: Sequence[str]) -> None:
    """Begin what the arguments will want, as far as they show it at a glance.

    What is wanted for another reason, such as a job file, is begun when that is known.
    """
    if arguments[:1] in (["run"], ["resume"]) and _names_cluster(arguments):
        from unloader.engine.cluster.link import start_early

        start_early()


def _names_cluster(arguments: Sequence[str]) -> bool:
    named = any(each.partition("=")[0] == "--cluster" for each in arguments)
    return named or bool(os.environ.get("UNLOADER_CLUSTER"))
