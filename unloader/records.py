"""The decorator of this package's dataclasses: that of `writers.records`, cheap at a start."""

from __future__ import annotations

from writers.records import dataclass

__all__ = ["dataclass"]
