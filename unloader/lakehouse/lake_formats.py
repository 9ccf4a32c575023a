"""The formats of lakehouse tables: their names in `--to`, their libraries, and their modules."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, cast

from unloader.errors import ConfigError

if TYPE_CHECKING:
    from unloader.lakehouse.table_commits import LakeFormat

LakeKind = Literal["iceberg", "delta", "ducklake"]

_MARKS: dict[str, LakeKind] = {"iceberg://": "iceberg", "delta:": "delta", "ducklake:": "ducklake"}
LIBRARIES: dict[LakeKind, str] = {
    "iceberg": "pyiceberg",
    "delta": "deltalake",
    "ducklake": "duckdb",
}
"""The library that each format needs."""

EXTRAS: dict[LakeKind, str] = {"iceberg": "iceberg", "delta": "delta", "ducklake": "duckdb"}
"""The extra of this package that installs the library."""

_TITLES = {"iceberg": "Iceberg", "delta": "Delta", "ducklake": "DuckLake"}


def lake_kind(place: str) -> LakeKind | None:
    """Return which format of tables a text of `--to` means; None if it means none."""
    return next((kind for mark, kind in _MARKS.items() if place.startswith(mark)), None)


def lake_format(kind: LakeKind) -> LakeFormat:
    """Return the module of a format of tables; ConfigError if its library is not installed."""
    try:
        return cast("LakeFormat", import_module(f"unloader.lakehouse.{kind}_tables"))
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{_TITLES[kind]} tables need the module {error.name!r}, which is not installed",
            f"pip install 'unloader[{EXTRAS[kind]}]'",
        ) from error


def absolute_name(place: str) -> str:
    """Return a text of `--to` so that the name of a table means the same from any directory."""
    kind = lake_kind(place)
    return place if kind is None else lake_format(kind).absolute_name(place)
