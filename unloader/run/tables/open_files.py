"""How many files a run over many tables has open at a time, and whether the system lets it."""

from __future__ import annotations

import resource

from unloader.errors import ConfigError
from unloader.nouns import counted

_OTHERS = 256
"""Pipes to workers, sockets, libraries: far more than a run has."""

_PUBLISHED = 320
"""About as many as the tables have open that are being published; see
`unloader.run.tables.finishing`."""


def allow_for(tables: int) -> None:
    """Raise the limit of open files of this process as far as a run over tables needs it.

    Each table has its lock open, and from its first unit until it is published its journal. The
    limit that is raised is the soft one, which protects old programs; usually it is 1024.

    Raises:
        ConfigError: The hard limit, which only an administrator can raise, is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * tables + _OTHERS + _PUBLISHED
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < tables + _OTHERS:
        raise ConfigError(
            f"{counted(tables, 'table needs', 'tables need')} {wanted} open files, but the "
            f"system lets this process have only {hard}",
            "raise the hard limit of open files (ulimit -Hn), or unload fewer tables in one run",
        )
    enough = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))
