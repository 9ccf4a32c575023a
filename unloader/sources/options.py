"""The options that only some sources know, collected from their rooms without loading a source.

A source of another package is loaded only when a URL names it, so its options are not among them.
"""

from __future__ import annotations

from importlib import import_module

from unloader.sources.registry import source_of

DECLARING = ("unloader.sources.oracle.options", "unloader.sources.postgres.options")
"""The modules with the names of options; they import nothing of their source."""


def source_variables() -> frozenset[str]:
    """Return the variables that sources read and no option has."""
    modules = map(import_module, DECLARING)
    return frozenset(name for module in modules for name in getattr(module, "VARIABLES", ()))


def unknown_to(kind: str) -> frozenset[str]:
    """Return the keys of the options that say nothing to this kind of source."""
    # Not needed by a help page, which shows the options of all sources.

    names = {name for module in DECLARING for name in import_module(module).OPTIONS}
    return frozenset(name.replace("-", "_") for name in names - set(source_of(kind).options))
