"""What a Dask worker must have in common with the parent, asked before it is sent anything.

Where this program is missing, or another version of it says something else, the standard library is
asked for what names the machine.
"""

from __future__ import annotations

import asyncio
import pickle
import platform
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from unloader import __version__
from unloader.engine.cluster import calls
from unloader.engine.cluster.connection import Connection
from unloader.errors import ConfigError


class Facts(Struct, frozen=True, kw_only=True):
    """Of one Dask worker."""

    address: str
    host: str
    python: str
    unloader: str
    """Empty where it is not there."""
    machine: str
    problem: str = ""
    """Why it cannot read the source, or cannot be asked."""


async def facts_of(connection: Connection, address: str, source_kind: str, seconds: float) -> Facts:
    """Ask a Dask worker.

    Raises:
        ConfigError: It does not answer in time.
    """

    async def ask(function: Any, *args: object) -> Any:
        try:
            return await asyncio.wait_for(connection.run(address, function, *args), seconds)
        except TimeoutError as error:
            raise ConfigError(
                f"the Dask worker at {address} has not answered for {seconds:g} s",
                "see its log, or end it",
            ) from error

    async def answer_to(function: Any, *args: object) -> Any:
        """Return what comes back, or the error."""
        return (await asyncio.gather(ask(function, *args), return_exceptions=True))[0]

    said = await answer_to(calls.hello, source_kind)
    if isinstance(said, ConfigError):
        raise said
    if not isinstance(said, Exception):
        return _told(address, said)
    host, python = await asyncio.gather(
        answer_to(platform.node), answer_to(platform.python_version)
    )
    for each in (host, python):
        if isinstance(each, ConfigError):
            raise each
        if isinstance(each, Exception):
            raise ConfigError(
                f"the Dask worker at {address} does not answer: {each}", "see its log"
            ) from each
    base = Facts(address=address, host=host, python=python, unloader="", machine="")
    differs = _minor(python) != _minor(platform.python_version())
    if differs or isinstance(said, ModuleNotFoundError):
        return base
    return replace(base, unloader="?", problem=str(said))


def _told(address: str, said: Any) -> Facts:
    # Other versions of this program answer with the object.
    found = pickle.loads(said) if isinstance(said, bytes) else said
    return Facts(
        address=address,
        host=found["host"],
        python=found["python"],
        unloader=found["unloader"],
        machine=found["machine"],
        problem=found["driver"],
    )


def check_fits(found: Sequence[Facts]) -> None:
    """Refuse Dask workers that could not do the work, or would do it otherwise.

    Raises:
        ConfigError: One does not fit, or there is none; names the machines.
    """
    if not found:
        raise ConfigError("the cluster has no Dask worker", "start some with: dask worker ADDRESS")
    for problem, hint in filter(None, map(_misfit, found)):
        alike = [each.host for each in found if (_misfit(each) or ("", ""))[1] == hint]
        more = f" (and {len(alike) - 1} more)" if len(alike) > 1 else ""
        raise ConfigError(f"{problem}{more}", hint)


def _misfit(facts: Facts) -> tuple[str, str] | None:
    where = f"the Dask worker on {facts.host} ({facts.address})"
    if _minor(facts.python) != _minor(platform.python_version()):
        return (
            f"{where} has Python {facts.python}, but this run has Python "
            f"{platform.python_version()}",
            "use the same minor version of Python on all machines",
        )
    if facts.unloader != __version__:
        has = f"unloader {facts.unloader}" if facts.unloader else "no unloader"
        reason = f": {facts.problem}" if facts.problem else ""
        return (
            f"{where} has {has}, but this run has unloader {__version__}{reason}",
            f"install unloader {__version__} in the environment of each Dask worker, and restart "
            "them",
        )
    if facts.problem:
        return (
            f"{where} cannot read the source: {facts.problem}",
            "install the driver in the environment of each Dask worker",
        )
    return None


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])
