"""Fixtures: a server that runs, and the credentials for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from object_stores.s3_server import CREDENTIALS, S3Server, s3_server


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Return a server, with the credentials for it in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return s3_process
