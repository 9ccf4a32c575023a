"""Two texts of one place are the same place."""

from __future__ import annotations

from pathlib import Path

import pytest

from unloader.storage.place_names import RealPlaces, real


@pytest.mark.parametrize(
    "place",
    [
        "extract/orders",
        "extract/not there/yet",
        "linked/orders",
        "extract/to orders",
        "extract/to nothing",
        "extract/to itself",
        "linked/..",
        "linked/../extract",
        "extract/",
        "linked/to orders/",
        "orders",
        ".",
        "",
        "/",
        "s3://bucket/night/orders/",
    ],
)
def test_many_places_are_the_same_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Through links, up, and where nothing is; also if others of the directory were asked for."""
    (tmp_path / "extract/orders").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "extract")
    (tmp_path / "extract/to orders").symlink_to("orders")
    (tmp_path / "extract/to nothing").symlink_to(tmp_path / "elsewhere/none")
    (tmp_path / "extract/to itself").symlink_to("to itself")
    monkeypatch.chdir(tmp_path)
    places = RealPlaces()
    for other in ("extract/a", "linked/a", "./a", "extract/to orders/a"):
        places.of(other)
    assert places.of(place) == real(place)
