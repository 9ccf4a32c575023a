"""A server for the tests of this room."""

from __future__ import annotations

from object_stores.s3_server import s3, s3_process

__all__ = ["s3", "s3_process"]
