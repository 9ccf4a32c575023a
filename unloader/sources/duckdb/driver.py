"""Loading DuckDB's module without what costs most of that and serves nothing here.

Of the CPU that `import duckdb` takes, two thirds are spent beside the database (DuckDB 2.0: 65 of
100 ms): 36 dataclasses are compiled, all their methods, for an interface of which this program
uses next to nothing; and to learn its own version the module has the metadata of its distribution
read by a parser of e-mail. While the module is imported, each of the two has a stand-in that gives
the same answer, later or in another way, and leaves to the library what it is not there for.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from writers import records

METADATA = "importlib.metadata"
KNOWN_OPTIONS = {"frozen", "slots", "kw_only"}
"""What `records.dataclass` can be told."""


def load_driver() -> Any:
    """Import DuckDB and return its module.

    Raises:
        ImportError: It is missing.
    """
    stand_ins: list[ModuleType] = []
    if "duckdb" not in sys.modules:
        stand_ins.append(_Dataclasses("dataclasses"))
        if METADATA not in sys.modules:
            stand_ins.append(_Metadata(METADATA))
    with _in_place(stand_ins):
        import duckdb
    return duckdb


@contextmanager
def _in_place(stand_ins: list[ModuleType]) -> Iterator[None]:
    """Let imports find the stand-ins, and then again what they found before."""
    before = {each.__name__: sys.modules.get(each.__name__) for each in stand_ins}
    sys.modules.update({each.__name__: each for each in stand_ins})
    try:
        yield
    finally:
        for each in stand_ins:
            if sys.modules.get(each.__name__) is each:
                del sys.modules[each.__name__]
                library = before[each.__name__]
                if library is not None:
                    sys.modules[each.__name__] = library


class _Dataclasses(ModuleType):
    """`dataclasses`, with a decorator whose classes compile a method when it is first called.

    Who imported it keeps it, and finds all the rest of the library in it.
    """

    @staticmethod
    def dataclass(cls: Any = None, /, **options: Any) -> Any:
        """Return the class as a dataclass; a decorator, with options or without."""
        if options.keys() <= KNOWN_OPTIONS:
            return records.dataclass(cls, **options)
        return dataclasses.dataclass(cls, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(dataclasses, name)


class _Metadata(ModuleType):
    """`importlib.metadata`, with the version of a distribution read off its directory's name."""

    @staticmethod
    def version(distribution: str) -> str:
        """Return the version of a distribution; its package has the same name."""
        spec = find_spec(distribution)
        if spec is not None and spec.origin is not None:
            there = Path(spec.origin).parent.parent.glob(f"{distribution}-*.dist-info")
            names = [each.name.removesuffix(".dist-info") for each in there]
            versions = [name.removeprefix(f"{distribution}-") for name in names]
            # What is not plain may be written otherwise in the metadata; of two, one is a remnant.
            if len(versions) == 1 and re.fullmatch(r"\d+(\.\d+)+", versions[0]):
                return versions[0]
        return str(_library().version(distribution))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_library(), name)


def _library() -> ModuleType:
    """Import `importlib.metadata` itself, which then is what everybody finds."""
    if isinstance(sys.modules.get(METADATA), _Metadata):
        del sys.modules[METADATA]
    return import_module(METADATA)
