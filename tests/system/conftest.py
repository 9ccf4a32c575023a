"""The Oracle of a test, and a fence against runs that leave processes behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lakehouse.catalogs import the_lake
from object_stores.s3_server import s3, s3_process
from oracle import leg as oracle_leg
from processes import program

__all__ = ["s3", "s3_process", "the_lake"]


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker that says on which servers a test runs."""
    config.addinivalue_line(
        "markers", "oracle_modes(*names): versions of the test server that a test runs on"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes `oracle` on the test server, and on a real database if there is one."""
    if "oracle" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("oracle_modes")
        metafunc.parametrize(
            "oracle", oracle_leg.legs(marker.args if marker else ("23ai",)), indirect=True
        )


@pytest.fixture
def oracle(request: pytest.FixtureRequest) -> Iterator[oracle_leg.OracleLeg]:
    """Its own database for one test, which is dropped at the end."""
    with oracle_leg.opened(request.param) as leg:
        yield leg


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a worker process running."""
    yield
    left = [each.pid for each in program.below() if program.reads_units(each)]
    assert not left, f"worker processes left behind: {left}"
