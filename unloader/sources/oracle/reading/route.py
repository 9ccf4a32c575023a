"""Which way the rows of a worker's statements come: natively, or as the driver makes them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from unloader.model import SourceSpec
from unloader.sources.oracle.connection.drivers import driver_version
from unloader.sources.oracle.connection.url import parse_location
from unloader.sources.oracle.native import library
from unloader.sources.oracle.native.batches import native_unless_left, tap_on
from unloader.sources.oracle.native.columns import may_be_native, sorts_of
from unloader.sources.oracle.native.confirmations import Peers, confirmed_sorts
from unloader.sources.oracle.reading.batches import arrow_batches
from unloader.sources.oracle.reading.fetch import FetchPlan, ordinary_fetch
from unloader.sources.oracle.reading.tuples import Fetched, tuple_batches

if TYPE_CHECKING:
    import oracledb

    from unloader.sources.oracle.connection.session import Session
    from unloader.sources.oracle.native.tap import Tap

logger = logging.getLogger(__name__)

Batches = Callable[["oracledb.Connection", str, FetchPlan, int], Generator[Fetched, None, None]]


class Route:
    """Decides statement by statement; what failed natively once is left to the driver from then on.

    Args:
        spec: The source.
    """

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._left: str | None = None
        """Why nothing is fetched natively any more."""
        self._confirmed: frozenset[str] | None = None
        self._tap: Tap | None = None

    def batches(self, plan: FetchPlan, session: Session) -> Batches:
        """Return how the rows of a plan come over a session.

        Raises:
            ConfigError: The native fetch was asked for, and cannot be used on this machine.
        """
        way = ordinary_fetch() if plan.fetched_as == "native" else plan.fetched_as
        ordinary = arrow_batches if way == "arrow" else tuple_batches
        if not self._may_be_native(plan, session):
            return ordinary

        tap = self._tap_on(session)
        return ordinary if tap is None else native_unless_left(tap, ordinary)

    def leave(self, reason: str) -> None:
        """Fetch nothing natively any more."""
        self._left = reason
        logger.warning("the driver fetches the rows from here on: %s", reason)

    def _may_be_native(self, plan: FetchPlan, session: Session) -> bool:
        asked = self._spec.session.fetch
        if asked not in ("auto", "native") or self._left is not None or not may_be_native(plan):
            return False
        return asked == "native" or set(sorts_of(plan)) <= self._confirmed_sorts(session)

    def _tap_on(self, session: Session) -> Tap | None:
        """Return a tap on the session's connection, None where there can be none."""
        connection = session.connection
        if self._tap is not None and self._tap.connection is connection:
            return self._tap

        if self._spec.session.fetch == "native":
            library.library()
        if parse_location(self._spec.location).pooled:
            found: Tap | str = "the server pools connections (DRCP)"
        else:
            found = tap_on(connection)
        if isinstance(found, str):
            self._left = found
            logger.info("the driver fetches the rows: %s", found)
            return None
        self._tap = found
        return found

    def _confirmed_sorts(self, session: Session) -> frozenset[str]:
        if self._confirmed is None:
            self._confirmed = confirmed_sorts(peers_of(self._spec, session))
        return self._confirmed


def peers_of(spec: SourceSpec, session: Session) -> Peers:
    """Return who has to agree: the server of a session, and the driver."""
    return Peers(
        server=parse_location(spec.location).connect_string,
        server_version=".".join(map(str, session.version)),
        driver_version=driver_version(),
    )
