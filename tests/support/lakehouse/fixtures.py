"""Fixtures: a catalog with a warehouse, and the settings that lead to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse.catalogs import Lake, lake


@pytest.fixture
def the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A catalog and its warehouse."""
    for name, value in Lake(tmp_path).env.items():
        monkeypatch.setenv(name, value)
    return lake(tmp_path)
