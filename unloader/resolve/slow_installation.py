"""The native libraries that a run would use and this installation lacks."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from unloader.resolve.resolved import ResolvedRun
from writers import built_library
from writers.model import ParquetFormat, TextFormat

_TEXT = ("text encoder", "writers.native.library", "6")
_PAGES = ("Parquet encoder", "writers.parquet.native.library", "1.4")
_SUMS = ("checksums", "writers.content.native", "1.2")
_SOURCES = {"postgresql": ("reader of COPY data", "unloader.sources.postgres.libpq.copying", "4")}
"""For each library: its name for users, its module, and how many times the CPU a run without it
takes at most. Measured with tables of 2 to 3 million rows and 2 to 6 columns on two processors."""


def missing_libraries(run: ResolvedRun) -> tuple[str, ...]:
    """Return one line if libraries are missing, with what that costs and how to build them.

    A library that is there and cannot be loaded is reported by `unloader formats`.
    """
    wanted = [_SOURCES[run.extract.source.kind]] if run.extract.source.kind in _SOURCES else []
    for output in run.outputs:
        is_native = output.options.encoder != "plain"
        if isinstance(output.format, TextFormat) and is_native:
            wanted.append(_TEXT)
        if isinstance(output.format, ParquetFormat):
            wanted += [_PAGES, _SUMS] if is_native else [_SUMS]
    missing = [
        f"{title} (up to {times} times the CPU without it)"
        for title, name, times in dict.fromkeys(wanted)
        if not _is_built(name)
    ]
    if not missing:
        return ()
    return (f"native libraries are not built: {', '.join(missing)}; {built_library.advice()}",)


@cache
def _is_built(name: str) -> bool:
    """Return whether the library of a module is there; asked for each table of a run."""
    module = import_module(name)
    return built_library.find(module.NAME, module.OVERRIDE) is not None
