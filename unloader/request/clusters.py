"""How a cluster is named: the address of its scheduler, or that one is to be started here."""

from __future__ import annotations

import re

LOCAL = re.compile(r"local:([1-9][0-9]{0,2})")
_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.\-_]+):([0-9]{1,5})/?")
FORMS = "tcp://HOST:PORT, tls://HOST:PORT, local:N or none"


def parse_cluster(text: str) -> str:
    """Return a cluster as it is named.

    Raises:
        ValueError: It is not.
    """
    text = text.strip()
    if text == "none" or LOCAL.fullmatch(text) or _ADDRESS.fullmatch(text):
        return text.rstrip("/")
    raise ValueError(f"{text!r} is not a cluster; write {FORMS}")


def own_workers(address: str) -> int:
    """Return how many Dask workers are to be started here; 0 where there is a scheduler already."""
    found = LOCAL.fullmatch(address)
    return int(found[1]) if found else 0
