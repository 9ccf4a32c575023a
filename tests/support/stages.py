"""The stages of a unit that took no time."""

from __future__ import annotations

from typing import Any

from unloader.model import Stages


def stages(**own: Any) -> Stages:
    """Return stages without seconds and bytes, except the ones that are given."""
    seconds = dict.fromkeys(("fetch_s", "encode_s", "write_s", "compress_s", "compress_cpu_s"), 0.0)
    return Stages(**{**seconds, "uncompressed_bytes": None, **own})
