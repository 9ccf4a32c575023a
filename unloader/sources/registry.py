"""Sources by URL scheme, with their options; a driver is imported when its source is used."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from unloader.errors import ConfigError, Interrupted
from unloader.model import SourceSpec
from unloader.redaction import TOKEN_VARIABLE, WALLET_PASSWORD_VARIABLE, learn
from unloader.request.locations import UrlForm
from unloader.secrets.secret_places import keyring_password, secret_in

if TYPE_CHECKING:
    from unloader.sources.base import Catalog, Source


T = TypeVar("T")

SOURCES = {
    "oracle": "unloader.sources.oracle.source:OracleSource",
    "duckdb": "unloader.sources.duckdb.source:DuckDBSource",
    "postgresql": "unloader.sources.postgres.source:PostgresSource",
    "sqlite": "unloader.sources.sqlite.source:SQLiteSource",
    "mysql": "unloader.sources.mysql.source:MySQLSource",
    "adbc": "unloader.sources.adbc.source:AdbcSource",
    "odbc": "unloader.sources.odbc.source:OdbcSource",
}

OPTIONS = {
    "oracle": (
        *("number-without-precision", "nanoseconds", "zone-columns"),
        *("session-sql", "call-timeout", "client-library", "scn", "fetch", "fetch-witness"),
        *("parallel-query", "direct-read", "max-db-load"),
    ),
    "postgresql": ("enable-row-security", "keep-snapshot", "lock-timeout", "max-db-load"),
    "mysql": ("lock-timeout",),
    "adbc": ("split-by",),
    "odbc": ("split-by", "odbc-dialect", "odbc-value-bytes"),
}
"""The options that only some of these sources know, by scheme.

They are listed here so that the command line knows them without loading a source.
"""

WALLET_PASSWORD_FILE = "UNLOADER_WALLET_PASSWORD_FILE"
TOKEN_FILE = "UNLOADER_ORACLE_TOKEN_FILE"
TOKEN_KEY_FILE = "UNLOADER_ORACLE_TOKEN_KEY_FILE"

VARIABLES = frozenset(
    (WALLET_PASSWORD_VARIABLE, WALLET_PASSWORD_FILE, TOKEN_VARIABLE, TOKEN_FILE, TOKEN_KEY_FILE)
)
"""Variables without an option that connections read."""

ALIASES = {"postgres": "postgresql", "mariadb": "mysql"}

ENTRY_POINT_GROUP = "unloader.sources"
"""Outside packages add sources here; the entry point's name is the scheme."""


def _installed() -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name))


def schemes() -> tuple[str, ...]:
    """Return every known scheme, our own first, then installed ones by name."""
    return (*SOURCES, *(point.name for point in _installed() if point.name not in SOURCES))


def source_of(scheme: str) -> Source:
    """Return the source for a URL scheme; `ConfigError` with the known ones for any other."""
    scheme = ALIASES.get(scheme, scheme)
    if scheme in SOURCES:
        module, _, name = SOURCES[scheme].partition(":")
        return cast("Source", getattr(import_module(module), name)())
    point = next((each for each in _installed() if each.name == scheme), None)
    if point is None:
        known = ", ".join(schemes())
        raise ConfigError(f"the source {scheme}:// is unknown", f"use one of: {known}")
    try:
        return cast("Source", point.load()())
    except Exception as error:
        package = point.dist.name if point.dist is not None else "a package"
        raise ConfigError(
            f"the source {point.name!r} of {package} ({point.value}) cannot be loaded: "
            f"{type(error).__name__}: {error}",
            "correct or remove that package",
        ) from error


def unknown_to(kind: str) -> frozenset[str]:
    """Return the keys of the options in `OPTIONS` that this kind of source does not know."""
    names = {name for options in OPTIONS.values() for name in options}
    return frozenset(name.replace("-", "_") for name in names - set(source_of(kind).options))


class _Kinds(Mapping[str, str]):
    """Every known scheme and its kind; a search of packages is slow, so it comes last."""

    def __getitem__(self, scheme: str) -> str:
        if scheme in SOURCES or scheme in ALIASES:
            return ALIASES.get(scheme, scheme)
        if any(point.name == scheme for point in _installed()):
            return scheme
        raise KeyError(scheme)

    def __iter__(self) -> Iterator[str]:
        return iter((*schemes(), *ALIASES))

    def __len__(self) -> int:
        return len(schemes()) + len(ALIASES)


KINDS: Mapping[str, str] = _Kinds()


def url_form(kind: str) -> UrlForm:
    """Return how the URLs of a kind of source are written."""
    try:
        return source_of(kind).url
    except (ConfigError, ImportError, AttributeError):
        # A broken package must not affect the other sources.
        return UrlForm(written=f"{kind}:...", what="other")


def missing_driver(error: ImportError, extra: str) -> ConfigError:
    """Return the error for a driver that is not installed, with the command that brings it."""
    install = f"pip install 'unloader[{extra}]'"
    if isinstance(error, ModuleNotFoundError):
        return ConfigError(f"the driver module {error.name!r} is not installed", install)
    # The driver is installed: one of its libraries or the memory for it is missing.
    return ConfigError(
        f"cannot load the driver module {error.name or extra!r}: {error}",
        f"raise the memory limit, or remove the driver with pip and reinstall it: {install}",
    )


def duckdb_driver() -> Any:
    """Return the module `duckdb`, which is a source and also computes expressions."""
    try:
        return import_module("duckdb")
    except ImportError as error:
        raise missing_driver(error, "duckdb") from error


_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 5.0
"""Time before a source that did not react to a cancel gets another one."""


@contextmanager
def cancelled_by(stop: Callable[[], bool], catalog: Catalog) -> Iterator[None]:
    """Cancel the catalog's call inside the block as soon as `stop` returns True.

    Without this, a long count or a wait for a lock would ignore Ctrl-C until it returns. `stop` is
    called several times a second, in a separate thread. `Interrupted` takes the place of the error
    of the cancelled call.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_SECONDS):
            if stop():
                catalog.cancel()
                over.wait(_PATIENCE_SECONDS)

    watcher = threading.Thread(target=watch, name="stop", daemon=True)
    watcher.start()
    try:
        yield
    except Interrupted:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if stop():
            raise Interrupted("stopped by a signal while the source was queried") from error
        raise
    finally:
        over.set()
        watcher.join()
    if stop():
        # The block did other work than a call of the source, which a cancel does not end.
        raise Interrupted("stopped by a signal")


def open_unless(stop: Callable[[], bool], spec: SourceSpec) -> Catalog:
    """Open a source in the parent; raise `Interrupted` as soon as `stop` returns True.

    Without this, a host that accepts the connection and does not answer would block Ctrl-C.
    """
    source = source_of(spec.kind)
    if not source.waits_for_network:
        return source.open_catalog(spec)
    connecting = in_thread(lambda: source.open_catalog(spec))
    while not connecting.done():
        if stop():
            raise Interrupted("stopped by a signal while connecting")
        wait([connecting], _POLL_SECONDS)
    return connecting.result()


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Call in a thread that its caller may abandon."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="connect", daemon=True).start()
    return done


def password_of(spec: SourceSpec) -> str | None:
    """Return the password the reference points at, None to leave it to the driver's own ways.

    `ConfigError` where its file or keyring cannot be used.
    """
    kind, name, password = spec.secret.kind, spec.secret.name, None
    if kind == "environment":
        password = os.environ.get(name)
    if kind == "file":
        text = secret_in(Path(name), "password file", "check --password-file")
        password = text.partition("\n")[0].rstrip("\r")
    if kind == "keyring":
        service, _, user = name.rpartition("/")
        password = keyring_password(service, user)
    learn(password)
    return password
