"""The Dask workers of a run: which of them fit, and which gets which places and seats."""

from __future__ import annotations

import asyncio
import pkgutil
import platform
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from unloader import __version__
from unloader.engine.cluster.agent import hello
from unloader.errors import ConfigError

if TYPE_CHECKING:
    from distributed import Client


class Home(Struct, frozen=True, kw_only=True):
    """A Dask worker, where an agent may be."""

    address: str
    """Of its Dask worker."""
    host: str
    """Name of the machine, as the user knows it."""
    machine: str
    """Tells the machine from others."""
    threads: int

    @property
    def label(self) -> str:
        return f"{self.host} ({self.address})"


def shared(homes: Sequence[Home], places: int) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """Share places out over machines, then over their Dask workers; each has a seat there."""
    machines: dict[str, list[Home]] = defaultdict(list)
    for home in sorted(homes, key=lambda each: each.address):
        machines[home.machine].append(home)
    # The Dask workers of a machine in turns, each as often as it has threads.
    turns = [
        [
            home
            for turn in range(max(each.threads for each in there))
            for home in there
            if turn < home.threads
        ]
        for there in machines.values()
    ]
    deal = (
        (seat, there[seat])
        for seat in range(max(map(len, turns), default=0))
        for there in turns
        if seat < len(there)
    )
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for place, (seat, home) in zip(range(places), deal, strict=False):
        found[home.address].append((place, seat))
    return {address: tuple(each) for address, each in found.items()}


def vacant_for(
    home: Home, vacant: Mapping[int, str], taken: set[int]
) -> tuple[tuple[int, int], ...]:
    """Return the vacant places that a new Dask worker takes, with seats on its machine."""
    chosen = sorted(vacant, key=lambda place: (vacant[place] != home.machine, place))
    free = (number for number in range(len(taken) + home.threads) if number not in taken)
    return tuple(sorted(zip(chosen[: home.threads], free, strict=False)))


async def home_of(
    client: Client, address: str, threads: int, source_kind: str, seconds: float
) -> Home:
    """Ask a Dask worker; a `ConfigError` if it does not fit. Its version is asked first."""

    async def ask(function: Callable[..., Any], *arguments: object) -> Any:
        call = client.run(function, *arguments, workers=[address])
        try:
            return (await asyncio.wait_for(call, seconds))[address]
        except ImportError:
            return None
        except Exception as error:
            late = isinstance(error, TimeoutError)
            reason = f"has not answered for {seconds:g} s" if late else f"does not answer: {error}"
            raise ConfigError(
                f"the Dask worker at {address} {reason}", "see its log, or end it"
            ) from error

    host = await ask(platform.node)
    where = f"the Dask worker on {host} ({address})"
    python, ours = await ask(platform.python_version), platform.python_version()
    if python.split(".")[:2] != ours.split(".")[:2]:
        raise ConfigError(
            f"{where} has Python {python}, but this run has Python {ours}",
            "use the same minor version of Python on all machines",
        )
    version = await ask(pkgutil.resolve_name, "unloader:__version__")
    if version != __version__:
        has = "no unloader" if version is None else f"unloader {version}"
        raise ConfigError(
            f"{where} has {has}, but this run has unloader {__version__}",
            f"install unloader {__version__} in the environment of each Dask worker, and restart "
            "them",
        )
    machine, problem = await ask(hello, source_kind)
    if problem:
        raise ConfigError(
            f"{where} cannot read the source: {problem}",
            "install the driver in the environment of each Dask worker",
        )
    return Home(address=address, host=host, machine=machine, threads=max(1, threads))
