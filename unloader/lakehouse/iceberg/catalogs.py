"""Catalogs as pyiceberg configures them, and what they refuse as errors for the user."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from unloader.errors import ConfigError, OutputFailed, UsageError
from unloader.lakehouse.places import place_of
from unloader.redaction import learn_fields, redact

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

MARK = "iceberg://"
_CHECK = "check the catalog and its configuration: ~/.pyiceberg.yaml or PYICEBERG_CATALOG__..."


class Name(Struct, frozen=True, kw_only=True):
    """A table in a catalog."""

    catalog: str
    identifier: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Name:
        """Return what a text of `--to` means.

        Raises:
            UsageError: It is no name of a table.
        """
        catalog, _, rest = text.removeprefix(MARK).partition("/")
        parts = tuple(rest.split("."))
        if not catalog or len(parts) < 2 or not all(parts) or "/" in rest:
            raise UsageError(
                f"--to {text} is not the name of an Iceberg table",
                "write it as iceberg://CATALOG/NAMESPACE.TABLE",
            )
        return cls(catalog=catalog, identifier=parts)


def open_catalog(name: Name) -> Catalog:
    """Return the catalog of a table.

    Raises:
        ConfigError: pyiceberg is not installed, or does not know the catalog.
    """
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError
        from pyiceberg.utils.config import Config
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Iceberg tables need the module {error.name!r}, which is not installed",
            "pip install 'unloader[iceberg]'",
        ) from error
    try:
        learn_fields(Config().get_catalog_config(name.catalog) or {})
        catalog = load_catalog(name.catalog)
        # A REST catalog adds properties, and may hand out credentials.
        learn_fields(catalog.properties)
        return catalog
    except (NotInstalledError, ModuleNotFoundError) as error:
        raise ConfigError(
            f"the catalog {name.catalog} needs a library that is not installed: {error}",
            "pip install 'unloader[iceberg]', or the extra of pyiceberg that the catalog needs",
        ) from error
    except known_errors() as error:
        raise ConfigError(
            f"cannot open the Iceberg catalog {name.catalog}: {said(error)}", _CHECK
        ) from error


def loaded(catalog: Catalog, name: Name) -> Table | None:
    """Return a table as it is now; None if there is none."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    with answering(name):
        try:
            found = catalog.load_table(name.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
    learn_fields(found.io.properties)
    return found


@contextmanager
def answering(name: Name) -> Iterator[None]:
    """Turn what a catalog says into the error for the user."""
    try:
        yield
    except known_errors() as error:
        raise OutputFailed(
            f"the Iceberg catalog {name.catalog} refused "
            f"{'.'.join(name.identifier)}: {said(error)}",
            _CHECK,
        ) from error


def known_errors() -> tuple[type[Exception], ...]:
    """Return what catalogs and their stores raise: of libraries that are loaded by now."""
    from pyiceberg import exceptions

    own = [
        each
        for each in vars(exceptions).values()
        if isinstance(each, type) and issubclass(each, Exception)
    ]
    others = (
        ("sqlalchemy.exc", "SQLAlchemyError"),
        ("botocore.exceptions", "BotoCoreError"),
        ("botocore.exceptions", "ClientError"),
    )
    loaded_ones = (
        getattr(sys.modules[module], each) for module, each in others if module in sys.modules
    )
    return (*own, *loaded_ones, OSError, ValueError)


def data_location(table: Any) -> str:
    """Return where the files of a table belong, as its records write it."""
    chosen = table.properties.get("write.data.path") if hasattr(table, "properties") else None
    return str(chosen or f"{str(table.location()).rstrip('/')}/data").rstrip("/")


def place_in(location: str, properties: dict[str, Any]) -> str:
    """Return a location as a place of `--to`, with what the catalog says of the store."""
    known = (("endpoint", "s3.endpoint"), ("region", "s3.region"))
    options = [f"{name}={properties[key]}" for name, key in known if properties.get(key)]
    is_s3 = location.startswith("s3")
    return place_of(location, "&".join(options) if is_s3 else "")


def said(error: Exception) -> str:
    """Return what an error says, in one line and without a secret."""
    return redact(f"{type(error).__name__}: {error}".strip().splitlines()[0])
