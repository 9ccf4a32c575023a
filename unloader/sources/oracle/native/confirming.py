"""Servers that agree with the native fetch: the comparison of rows, and the file of its results.

The comparison fetches rows of a table both ways and compares them cell by cell. The results are in
one file in the user's state directory, which is replaced as a whole. They hold for a server's
address and version, for the driver's version, and for the compared sorts of columns.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from unloader.errors import ConfigError, SourceError
from unloader.sources.oracle.connection.connect import parse_location
from unloader.sources.oracle.native.batches import (
    NativeStatement,
    NotForNative,
    Tap,
    tap_on,
)
from unloader.sources.oracle.native.decoder import (
    ABI_VERSION,
    Refused,
    library,
    may_be_native,
    sorts_of,
)
from unloader.sources.oracle.reading.fetch import driver_version
from writers.files.regular import read_regular

if TYPE_CHECKING:
    from unloader.model import SourceSpec
    from unloader.sources.oracle.connection.session import Session
    from unloader.sources.oracle.reading.fetch import FetchPlan


logger = logging.getLogger(__name__)

CONFIRMED_ROWS = 20_000

_SIZES = (1, 2, 3, 50, 1000)
"""Rows of one response after the other: values repeat across each of their boundaries."""


def confirm_fetch(
    spec: SourceSpec, session: Session, statements: Sequence[str], plan: FetchPlan
) -> None:
    """Compare rows of a table, and remember that the server of a session agrees.

    Raises:
        ConfigError: The result cannot be saved, or the comparison cannot run on this machine.
        SourceError: The two ways differ, or the table is not for the native fetch.
    """
    library()
    tap = tap_on(session.connection)
    if not may_be_native(plan):
        tap = "it leaves LOBs, LONGs and some other columns to the driver"
    if isinstance(tap, str):
        raise SourceError(
            f"the native fetch does not work for this run: {tap}", "leave --confirm-fetch out"
        )
    rows, sorts = compare(session, tap, statements, plan)
    if not sorts:
        raise SourceError(
            "the native fetch cannot be confirmed: no row has a value",
            "leave --confirm-fetch out, or confirm with another table",
        )
    path = confirm(peers_of(spec, session), sorts, rows)
    logger.info("%d rows agree; remembered in %s", rows, path)


def compare(
    session: Session, tap: Tap, statements: Sequence[str], plan: FetchPlan
) -> tuple[int, frozenset[str]]:
    """Fetch rows of a table both ways and compare every cell.

    Args:
        session: Nothing else happens on it meanwhile; lost if the two ways differ.
        statements: The statements of a run's units, read in order until there are enough rows.

    Returns:
        The number of rows, and the sorts of the columns with a value that is not NULL.

    Raises:
        SourceError: The two ways differ, or a statement is not for the native fetch.
    """
    sorts = sorts_of(plan)
    rows, seen = 0, set[str]()
    for sql in statements:
        if rows >= CONFIRMED_ROWS:
            break
        with session.translating():
            try:
                with NativeStatement(tap, plan) as statement:
                    statement.execute(sql)
                    more, turn = True, 0
                    while more and rows < CONFIRMED_ROWS:
                        size = _SIZES[min(turn, len(_SIZES) - 1)]
                        arrays, more = statement.compared(size)
                        turn += 1
                        rows += len(arrays[0])
                        seen.update(
                            sort
                            for sort, array in zip(sorts, arrays, strict=True)
                            if array.null_count < len(array)
                        )
            except NotForNative as error:
                raise SourceError(
                    f"the native fetch does not work for this table: {error}",
                    "leave --confirm-fetch out",
                ) from error
            except Refused as refusal:
                where = f" (column {refusal.column + 1})" if refusal.column >= 0 else ""
                raise SourceError(
                    f"the native fetch and the driver give different values{where}: "
                    f"{refusal.reason}",
                    "continue without --confirm-fetch; the driver's fetch is exact",
                ) from refusal
            except ValueError as error:
                raise SourceError(
                    f"the driver cannot read a date of this table: {error}",
                    "confirm with another table",
                ) from error
    return rows, frozenset(seen)


FORMAT = 1


class Peers(Struct, frozen=True, kw_only=True):
    """The server and the versions for which a confirmation is valid."""

    server: str
    server_version: str
    driver_version: str
    decoder_version: int = ABI_VERSION

    @property
    def key(self) -> str:
        return json.dumps([self.server, self.server_version, self.driver_version, ABI_VERSION])


def peers_of(spec: SourceSpec, session: Session) -> Peers:
    return Peers(
        server=parse_location(spec.location).connect_string,
        server_version=".".join(map(str, session.version)),
        driver_version=driver_version(),
    )


def place() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    path = Path(base if os.path.isabs(base) else os.path.expanduser("~/.local/state"))
    return path / "unloader" / "confirmed-fetches.json"


def confirmed_sorts(peers: Peers) -> frozenset[str]:
    """Return the sorts of columns that a server was seen to agree about; of no file none.

    A file that cannot be read, or is not ours, confirms nothing.
    """
    entry = _entries().get(peers.key)
    sorts = entry.get("columns") if isinstance(entry, dict) else None
    return frozenset(map(str, sorts)) if isinstance(sorts, list) else frozenset()


def confirm(peers: Peers, sorts: frozenset[str], rows: int) -> Path:
    """Add sorts of columns to the confirmed sorts of a server; return the file.

    Args:
        rows: How many rows were compared this time.

    Raises:
        ConfigError: The file cannot be written.
    """
    path = place()
    entries = dict(_entries())
    entries[peers.key] = {
        **asdict(peers),
        "columns": sorted(confirmed_sorts(peers) | sorts),
        "rows": rows,
        "confirmed": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    text = json.dumps({"format": FORMAT, "servers": entries}, indent=1, ensure_ascii=False)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".confirmed-", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot store the confirmations in {path}: {error}",
            "set XDG_STATE_HOME to a directory that this user may write to",
        ) from error
    return path


def _entries() -> Mapping[str, Any]:
    path = place()
    try:
        found = path.lstat()
        # Only this user may decide which sorts are safe to use.
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            return {}
        content = json.loads(read_regular(path))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return {}
    servers = content.get("servers")
    return servers if isinstance(servers, dict) else {}
