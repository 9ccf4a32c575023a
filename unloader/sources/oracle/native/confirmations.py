"""Which servers were seen to agree with the native fetch, kept in the user's state directory.

One file, which is replaced as a whole. A server is known by where it is and by its version: after
an upgrade, of the server or of the driver, it has to be confirmed again. So has a sort of column
that was not among those compared.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from unloader.errors import ConfigError
from unloader.sources.oracle.native.library import ABI_VERSION
from writers.files.regular import read_regular

FORMAT = 1
"""Of the file."""


class Peers(Struct, frozen=True, kw_only=True):
    """What has to be the same as when it was confirmed."""

    server: str
    """Its connect string."""
    server_version: str
    driver_version: str
    decoder_version: int = ABI_VERSION

    @property
    def key(self) -> str:
        """The four as one text."""
        return json.dumps([self.server, self.server_version, self.driver_version, ABI_VERSION])


def place() -> Path:
    """Return the file, which need not be there."""
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
    """Add sorts of columns to those of a server; return the file.

    Args:
        peers: Who agreed.
        sorts: About what.
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
        # Nobody else may say what is safe to be used.
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            return {}
        content = json.loads(read_regular(path))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return {}
    servers = content.get("servers")
    return servers if isinstance(servers, dict) else {}
