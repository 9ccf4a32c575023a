"""Which sources there are, by URL scheme; a driver is imported when its source is first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

from unloader.errors import ConfigError
from unloader.request.locations import UrlForm

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from unloader.sources.base import Source

SOURCES = {
    "oracle": "unloader.sources.oracle.source:OracleSource",
    "duckdb": "unloader.sources.duckdb.source:DuckDBSource",
    "postgresql": "unloader.sources.postgres.source:PostgresSource",
    "sqlite": "unloader.sources.sqlite.source:SQLiteSource",
}
"""Scheme to module and class of the sources that come with the package."""

ALIASES = {"postgres": "postgresql"}

ENTRY_POINT_GROUP = "unloader.sources"
"""Outside packages add sources here; the entry point's name is the scheme."""


def _installed() -> tuple[EntryPoint, ...]:
    # Imported on use: it takes longer than all the rest of this module.

    return tuple(sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name))


def schemes() -> tuple[str, ...]:
    """Return every known scheme, our own first, then installed ones by name."""
    return (*SOURCES, *(point.name for point in _installed() if point.name not in SOURCES))


def source_of(scheme: str) -> Source:
    """Return the source for a URL scheme.

    Raises:
        ConfigError: No such scheme; the hint lists the known ones.
    """
    scheme = ALIASES.get(scheme, scheme)
    target = SOURCES.get(scheme)
    if target is None:
        for point in _installed():
            if point.name == scheme:
                return _loaded(point)
        known = ", ".join(schemes())
        raise ConfigError(f"the source {scheme}:// is unknown", f"use one of: {known}")
    module, _, name = target.partition(":")
    return cast("Source", getattr(import_module(module), name)())


def _loaded(point: EntryPoint) -> Source:
    """Return the source of another package.

    Raises:
        ConfigError: Its code cannot be loaded.
    """
    try:
        return cast("Source", point.load()())
    except Exception as error:
        package = point.dist.name if point.dist is not None else "a package"
        raise ConfigError(
            f"the source {point.name!r} of {package} ({point.value}) cannot be loaded: "
            f"{type(error).__name__}: {error}",
            "correct or remove that package",
        ) from error


_OURS = {**{scheme: scheme for scheme in SOURCES}, **ALIASES}


class _Kinds(Mapping[str, str]):
    """Each scheme there is, and the kind of source it stands for.

    Other packages are looked at only for a scheme that is not ours: that takes longer than reading
    a URL and all the options.
    """

    def __getitem__(self, scheme: str) -> str:
        if scheme in _OURS:
            return _OURS[scheme]
        if any(point.name == scheme for point in _installed()):
            return scheme
        raise KeyError(scheme)

    def __iter__(self) -> Iterator[str]:
        return iter((*schemes(), *ALIASES))

    def __len__(self) -> int:
        return len(schemes()) + len(ALIASES)


KINDS: Mapping[str, str] = _Kinds()
"""Each scheme there is, and the kind of source it stands for."""


def url_form(kind: str) -> UrlForm:
    """Return how the URLs of a kind of source are written."""

    try:
        return source_of(kind).url
    except (ConfigError, ImportError, AttributeError):
        # A broken package of somebody else must not stand in the way of the others.
        return UrlForm(written=f"{kind}:...", what="other")


def missing_driver(error: ImportError, extra: str) -> ConfigError:
    """Return the error for a driver that is not installed, with the command that brings it."""
    if not isinstance(error, ModuleNotFoundError):
        # It is there: a library of its own is missing, or there is too little memory for it.
        return ConfigError(
            f"cannot load the driver module {error.name or extra!r}: {error}",
            "raise the memory limit, or remove the driver with pip and reinstall it: pip install "
            f"'unloader[{extra}]'",
        )
    return ConfigError(
        f"the driver module {error.name!r} is not installed",
        f"pip install 'unloader[{extra}]'",
    )
