"""A server for the tests of this room."""

from __future__ import annotations

from object_stores.fixtures import s3, s3_process

__all__ = ["s3", "s3_process"]
