"""One process that has scipy, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeps import scipy_packages
from sweeps.replays import Replays


@pytest.fixture(scope="session")
def scipy() -> Path:
    """The directory that has scipy, or a skip that says why it cannot be had."""
    try:
        return scipy_packages.directory()
    except scipy_packages.Missing as missing:
        pytest.skip(f"no scipy: {missing}")


@pytest.fixture(scope="session")
def replays(scipy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replays]:
    """What replays files of points."""
    found = Replays(scipy, tmp_path_factory.mktemp("replays"))
    yield found
    found.close()
