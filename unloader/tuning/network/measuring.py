"""Runs tests until they end, and measures the ceiling of the network for an unload."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import ConfigError, Interrupted, UnloaderError
from unloader.tuning.network import wire
from unloader.tuning.network.datagrams import DatagramTest
from unloader.tuning.network.flows import SILENCE_SECONDS, Flow, Settings
from unloader.tuning.network.messages import MessageTest

_SECONDS = 3.0
_TRIP_SECONDS = 1.0
_WAIT_SECONDS = 5.0
MOST_SECONDS = 60.0
"""Longest time of a measurement; a busy machine takes its time to start threads (guess)."""


class Received(Struct, frozen=True, kw_only=True):
    """The rate from all listeners together, and the median of small round trips to the farthest."""

    bytes_per_second: int
    round_trip_seconds: float


def watched(
    tests: Sequence[DatagramTest | MessageTest],
    report: Callable[[Sequence[Flow]], None] = lambda flows: None,
    interval: float = 2.0,
    stop: Callable[[], bool] = lambda: False,
) -> list[Flow]:
    """Return the flows of tests after they have ended; `report` gets them at intervals.

    A test that listens waits for `wait` seconds of its settings, and then one second more for hosts
    that begin a little later. All is over after these times and a few seconds.
    """
    began = quiet = time.monotonic()
    settings = tests[0].settings
    most = settings.wait + settings.warm_up_seconds + settings.duration + 4 * SILENCE_SECONDS
    due = began + interval
    listens, flows = any(each.listens for each in tests), list[Flow]()
    try:
        for each in tests:
            each.start(stop)
        while True:
            active = [each.is_active() for each in tests]
            flows = [flow for each in tests for flow in each.flows()]
            now = time.monotonic()
            if any(active):
                quiet = now
            pause = 0.0 if not listens else 1.0 if flows else settings.wait
            if stop() or now > began + most or (not any(active) and now - quiet >= pause):
                return flows
            if now >= due:
                report(flows)
                due += interval
            time.sleep(0.05)
    finally:
        for each in tests:
            each.close()


def received_from(
    peers: Sequence[str], connections: int, stop: Callable[[], bool] = lambda: False
) -> Received:
    """Measure small round trips, and then what listeners send over this number of connections.

    Raises:
        ConfigError: A listener does not answer, or fails.
        Interrupted: `stop` returned true.
    """
    basis = Settings(threads=max(1, connections // len(peers)), wait=_WAIT_SECONDS)
    small = replace(
        basis,
        threads=1,
        blocking=True,
        duration=_TRIP_SECONDS,
        message_size=64,
        message_size_max=64,
    )
    large = replace(
        basis, reverse=True, duration=_SECONDS, message_size=1 << 20, message_size_max=1 << 20
    )
    trip, rate = 0.0, 0.0
    for settings in (small, large):
        test = MessageTest(settings, None, peers)
        watched([test], stop=stop)
        if stop():
            raise Interrupted("stopped by a signal during the measurement")
        flows = test.flows()
        for flow in flows:
            if flow.error or not flow.bytes_per_second:
                raise ConfigError(flow.error or f"{flow.peer} sent nothing", "measure again")
            trip = max(trip, flow.p50)
        rate = sum(flow.bytes_per_second for flow in flows)
    return Received(bytes_per_second=round(rate), round_trip_seconds=round(trip, 6))


async def received_elsewhere(peers: Sequence[str], connections: int) -> Received | str:
    """Measure on a Dask worker; return the reason if it fails."""
    try:
        return await asyncio.to_thread(received_from, peers, connections)
    except UnloaderError as error:
        return error.message


def own_address(peer: str) -> str | None:
    """Return the address of this machine that reaches another host; nothing is sent."""
    try:
        with wire.opened(peer, socket.SOCK_DGRAM, binds=False) as link:
            return str(link.getsockname()[0])
    except UnloaderError:
        return None
