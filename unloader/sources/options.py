"""The options of all sources, collected from their rooms without loading any source.

A source of another package is loaded only when a URL names it, so its options are none of these.
"""

from __future__ import annotations

from importlib import import_module

from unloader.request.options import listing
from unloader.request.options.option import Option

DECLARING = ("unloader.sources.oracle.options", "unloader.sources.postgres.options")
"""The modules of `OPTIONS`, in the order of the help pages; they import nothing of their source."""


def source_options() -> tuple[Option, ...]:
    """Return every option that only some sources know; one that several know is there once."""
    found: dict[str, Option] = {}
    for module in DECLARING:
        declared: tuple[Option, ...] = import_module(module).OPTIONS
        found.update((option.name, option) for option in declared if option.name not in found)
    return tuple(found.values())


def source_variables() -> frozenset[str]:
    """Return the variables that sources read and no option has."""
    modules = map(import_module, DECLARING)
    return frozenset(name for module in modules for name in getattr(module, "VARIABLES", ()))


def every_option() -> tuple[Option, ...]:
    """Return the one list of options, in the order of the help pages."""
    return (*listing.BEFORE_SOURCES, *source_options(), *listing.BEHIND_SOURCES)


def unknown_to(kind: str) -> frozenset[str]:
    """Return the keys of the options that say nothing to this kind of source."""
    # Not needed by a help page, which shows the options of all sources.
    from unloader.sources.registry import source_of

    known = {option.name for option in source_of(kind).options}
    return frozenset(option.key for option in source_options() if option.name not in known)
