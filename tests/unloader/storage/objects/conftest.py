"""A server for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from object_stores.s3_server import CREDENTIALS, S3Server, s3_server


@pytest.fixture(scope="session")
def _server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Return a server, with the credentials for it in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return _server
