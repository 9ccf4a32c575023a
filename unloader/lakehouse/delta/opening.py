"""Where a Delta table is, and how deltalake opens it; what it refuses as errors for the user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from unloader.errors import ConfigError, OutputFailed, UsageError
from unloader.redaction import redact
from writers.errors import FormatError
from writers.objects.location import Location, is_location

if TYPE_CHECKING:
    from deltalake import DeltaTable

MARK = "delta:"
_OPTIONS = {"endpoint": "AWS_ENDPOINT_URL", "region": "AWS_REGION"}


class Address(Struct, frozen=True, kw_only=True):
    """The directory of a table, or its prefix in an object store."""

    place: str
    """As a place of `--to`."""
    uri: str
    """As deltalake has it."""
    options: tuple[tuple[str, str], ...] = ()
    """What deltalake is told of the store."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return what a text of `--to` means.

        Raises:
            UsageError: It is no name of a table.
        """
        place = text.removeprefix(MARK)
        if not place:
            raise UsageError(f"--to {text} does not name a table", "write delta:DIRECTORY")
        if "://" in place and not is_location(place):
            raise UsageError(
                "--to delta: is neither a directory nor a place of a known store; it is not "
                "shown because it may contain credentials",
                "write delta:DIRECTORY, delta:s3://BUCKET/PREFIX, delta:gs:// or delta:az://; "
                "put the credentials into the environment",
            )
        if not is_location(place):
            path = os.path.abspath(place)
            return cls(place=path, uri=path)
        try:
            found = Location.parse(place)
        except FormatError as error:
            raise UsageError(f"--to: {error.message}", error.hint) from None
        options = [(_OPTIONS[name], value) for name, value in found.options if name in _OPTIONS]
        if found.option("endpoint").startswith("http://"):
            options.append(("AWS_ALLOW_HTTP", "true"))
        uri = f"{found.scheme}://{found.bucket}/{found.key}"
        return cls(place=str(found), uri=uri, options=tuple(options))


def load(address: Address) -> DeltaTable | None:
    """Return a table as it is now; None if there is none.

    Raises:
        ConfigError: deltalake is not installed.
        OutputFailed: The table cannot be read.
    """
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Delta tables need the module {error.name!r}, which is not installed",
            "pip install 'unloader[delta]'",
        ) from error
    with answering(address):
        try:
            return DeltaTable(address.uri, storage_options=dict(address.options))
        except TableNotFoundError:
            return None


@contextmanager
def answering(address: Address) -> Iterator[None]:
    """Turn what deltalake says into the error for the user."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        raise OutputFailed(
            f"the Delta table {address.place} refused: {redact(text)}",
            "check its name, the credentials and their permissions",
        ) from error
