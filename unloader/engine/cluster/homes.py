"""The Dask workers of a run: which of them fit, and which gets which places and seats."""

from __future__ import annotations

import asyncio
import pkgutil
import platform
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

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
    problem: str = ""
    """Why it does not fit the run."""
    hint: str = ""

    @property
    def label(self) -> str:
        return f"{self.host} ({self.address})"


def shared(homes: Sequence[Home], places: int) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """Share the places of a run out to Dask workers, over machines and then over their workers.

    So the first places are as many machines as there are, and a run with few workers uses all
    machines alike.

    Returns:
        By address, each place with the number of its seat on its machine.
    """
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
    """Ask a Dask worker; only functions of the standard library until its version is known.

    Raises:
        ConfigError: It cannot be asked, or does not answer in time.
    """

    async def ask(function: Callable[..., Any], *arguments: object) -> Any:
        try:
            call = client.run(function, *arguments, workers=[address])
            return (await asyncio.wait_for(call, seconds))[address]
        except TimeoutError as error:
            raise ConfigError(
                f"the Dask worker at {address} has not answered for {seconds:g} s",
                "see its log, or end it",
            ) from error

    answers: tuple[Any, ...] = await asyncio.gather(
        ask(platform.node),
        ask(platform.python_version),
        ask(pkgutil.resolve_name, "unloader:__version__"),
        return_exceptions=True,
    )
    host, python, version = answers
    for each in answers:
        if isinstance(each, ConfigError):
            raise each
    for each in (host, python):
        if isinstance(each, BaseException):
            raise ConfigError(
                f"the Dask worker at {address} does not answer: {each}", "see its log"
            ) from each
    home = Home(address=address, host=host, machine="", threads=max(1, threads))
    where = f"the Dask worker on {host} ({address})"
    if python.split(".")[:2] != platform.python_version().split(".")[:2]:
        return replace(
            home,
            problem=f"{where} has Python {python}, but this run has Python "
            f"{platform.python_version()}",
            hint="use the same minor version of Python on all machines",
        )
    if version != __version__:
        has = f"unloader {version}"
        if isinstance(version, Exception):
            has = "no unloader" if isinstance(version, ImportError) else f"unloader ?: {version}"
        return replace(
            home,
            problem=f"{where} has {has}, but this run has unloader {__version__}",
            hint=f"install unloader {__version__} in the environment of each Dask worker, and "
            "restart them",
        )
    machine, problem = await ask(hello, source_kind)
    if problem:
        return replace(
            home,
            problem=f"{where} cannot read the source: {problem}",
            hint="install the driver in the environment of each Dask worker",
        )
    return replace(home, machine=machine)


def check_fits(homes: Sequence[Home]) -> None:
    """Refuse Dask workers that could not do the work, or would do it in another way.

    Raises:
        ConfigError: One does not fit, or the cluster has no Dask worker; names the machines.
    """
    if not homes:
        raise ConfigError("the cluster has no Dask worker", "start some with: dask worker ADDRESS")
    for home in homes:
        if home.problem:
            others = sum(each.hint == home.hint for each in homes) - 1
            more = f" (and {others} more)" if others else ""
            raise ConfigError(f"{home.problem}{more}", home.hint)
