"""Which library makes gzip members of which level: an accelerated one where it is installed.

All of them make the same format; the bytes differ from library to library, and may differ from
one version of a library to the next or between kinds of CPU. So a run says which one it used.

Measured on 8 MiB of two dialects of the reference table, of repetitive orders and of program text,
CPU seconds of one core: isal is 4 to 6 times as fast as zlib at levels 1 to 3 and its files are as
small or smaller. From level 4 on zlib-ng is 1.3 to 4 times as fast as zlib, its files between 1.2 %
smaller and 5 % larger.
"""

from __future__ import annotations

import zlib
from typing import Any

from msgspec import Struct

ISAL_LEVELS = (1, 3)
"""isal's level 0 compresses, unlike that of the others, and is its weakest: it is never chosen."""

ISAL_DEFAULT = 3
"""Without a level: on the reference rows 0.3 % larger than zlib's level 6, and 14 times as fast."""

ZLIB_NG_LEVELS = (4, 9)
ZLIB_DEFAULT = 6


class GzipLibrary(Struct, frozen=True):
    """A library and the level it is asked for."""

    name: str
    version: str
    level: int
    module: Any
    """With zlib's `compressobj`."""


def gzip_library(level: int | None) -> GzipLibrary:
    """Return the library that serves a level from 1 to 9; None is the best default installed."""
    wanted = ISAL_DEFAULT if level is None else level
    if ISAL_LEVELS[0] <= wanted <= ISAL_LEVELS[1] and (found := _isal(wanted)) is not None:
        return found
    if level is None:
        return _zlib_ng(ZLIB_DEFAULT) or _zlib(ZLIB_DEFAULT)
    in_reach = ZLIB_NG_LEVELS[0] <= level <= ZLIB_NG_LEVELS[1]
    return (_zlib_ng(level) if in_reach else None) or _zlib(level)


def _isal(level: int) -> GzipLibrary | None:
    try:
        import isal
        from isal import isal_zlib
    except ImportError:
        return None
    return GzipLibrary("isal", str(isal.__version__), level, isal_zlib)


def _zlib_ng(level: int) -> GzipLibrary | None:
    try:
        import zlib_ng
        from zlib_ng import zlib_ng as zlib_ng_module
    except ImportError:
        return None
    return GzipLibrary("zlib-ng", str(zlib_ng.__version__), level, zlib_ng_module)


def _zlib(level: int) -> GzipLibrary:
    return GzipLibrary("zlib", zlib.ZLIB_RUNTIME_VERSION, level, zlib)
