"""Errors of the libraries become those of this program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from unloader.errors import UnloaderError, translate


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except UnloaderError:
        raise
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error
