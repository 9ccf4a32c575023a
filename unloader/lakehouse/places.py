"""The names of tables in `--to`, and the places that their locations are."""

from __future__ import annotations

import os
from typing import Literal
from urllib.parse import urlsplit

from unloader.errors import OutputFailed
from writers.objects.location import is_location

LakeKind = Literal["iceberg", "delta", "ducklake"]

_MARKS: dict[str, LakeKind] = {
    "iceberg://": "iceberg",
    "delta:": "delta",
    "ducklake:": "ducklake",
}


def lake_kind(place: str) -> LakeKind | None:
    """Return which format of tables a text of `--to` means; None if it means none."""
    return next((kind for mark, kind in _MARKS.items() if place.startswith(mark)), None)


def absolute_name(place: str) -> str:
    """Return the name of a table so that it means the same from any directory."""
    if place.startswith("ducklake:"):
        from unloader.lakehouse.ducklake.opening import Address

        return Address.parse(place).name
    path = place.removeprefix("delta:")
    if path == place or is_location(path):
        return place
    return f"delta:{os.path.abspath(path)}"


def place_of(location: str, options: str = "") -> str:
    """Return the place of `--to` that a location in the records of a table is.

    Args:
        location: A URI, or an absolute path.
        options: What is to be known of an object store, as a place has it behind the `?`.

    Raises:
        OutputFailed: It is in a kind of store that is not known.
    """
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return location.removeprefix("file:").replace("///", "/", 1).rstrip("/") or "/"
    schemes = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}
    if parts.scheme not in schemes:
        raise OutputFailed(
            f"the table is in {parts.scheme}://, and unloader cannot write there",
            "use a table in s3://, gs:// or a local directory",
        )
    found = f"{schemes[parts.scheme]}://{parts.netloc}{parts.path}".rstrip("/")
    return found + (options and f"?{options}")
