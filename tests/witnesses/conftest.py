"""Makes this folder's modules importable, and the witnesses and their tables at hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# Last, so that nothing here can hide a real package.
sys.path.append(str(Path(__file__).parent))

from witness_clients import Client, Missing, fetched
from witness_table import Tables

_FETCHED: dict[str, Client | Missing] = {}


@pytest.fixture(scope="session")
def tables() -> Tables:
    """The database of every server of this folder."""
    return Tables()


@pytest.fixture(params=("node", "java", "go"))
def client(request: pytest.FixtureRequest) -> Client:
    """Each client, or a skip that says why it cannot be had."""
    name: str = request.param
    if name not in _FETCHED:
        try:
            _FETCHED[name] = fetched(name)
        except Missing as missing:
            _FETCHED[name] = missing
    found = _FETCHED[name]
    if isinstance(found, Missing):
        pytest.skip(f"no {name} client: {found}")
    return found
