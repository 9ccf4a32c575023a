"""Whether two runs over several tables were asked for the same.

Which tables there are may differ from one hour to the next. So it is the question that is compared,
with its patterns, and not what came of it.
"""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec.json import encode
from msgspec.structs import replace

from unloader.resolve.broken_run import job_of
from unloader.selection.asked import AskedTables, TablesRequest


def job_digest(asked: TablesRequest) -> str:
    """Return the SHA-256, in hex, of what is asked for, without any secret.

    How fast that is done, how often it is tried, and where secrets are found make no difference.
    """
    document: dict[str, Any] = {
        "to": asked.options.destination,
        "entries": [_bare(entry) for entry in asked.entries],
    }
    routes = [_places(entry) for entry in asked.entries]
    if any(routes):
        # Where the first one goes is said by "to", and where the others go by nothing else.
        document["routes"] = routes
    return hashlib.sha256(encode(document, order="sorted")).hexdigest()


def _places(entry: AskedTables) -> list[tuple[str, ...]]:
    return [each.output.destinations for each in entry.request.routes or ()]


def _bare(entry: AskedTables) -> AskedTables:
    return replace(entry, request=job_of(entry.request), label="")
