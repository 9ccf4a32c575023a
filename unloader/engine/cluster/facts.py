"""What a Dask worker must have in common with the parent, asked before it is sent anything."""

from __future__ import annotations

import asyncio
import pkgutil
import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from unloader import __version__
from unloader.engine.cluster import agent
from unloader.engine.cluster.sharing import Home
from unloader.errors import ConfigError

if TYPE_CHECKING:
    from distributed import Client


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
        if isinstance(each, Exception):
            raise ConfigError(
                f"the Dask worker at {address} does not answer: {each}", "see its log"
            ) from each
    home = Home(address=address, host=host, machine="", threads=max(1, threads))
    where = f"the Dask worker on {host} ({address})"
    if _minor(python) != _minor(platform.python_version()):
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
    machine, problem = await ask(agent.hello, source_kind)
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


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
