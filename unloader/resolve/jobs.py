"""Whether two runs are of the same job: the same rows, in the same form.

Which tables there are may differ from one hour to the next. So the question is compared, with its
patterns, and not the list of tables that came of it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from msgspec.json import encode
from msgspec.structs import replace

from unloader.model import EncryptionOptions, OutputOptions, Request, SecretReference
from unloader.selection.choice import AskedTables, TablesRequest

if TYPE_CHECKING:
    from unloader.transforms.model import TransformOptions


def same_job(one: Request, other: Request) -> bool:
    """Return whether two requests ask for the same rows, written in the same way.

    How fast that is done, how often it is tried and where secrets are found make no difference;
    statements of a session and the Parquet key are compared elsewhere, since no record holds them.
    """
    return job_of(one) == job_of(other)


def digest_of_job(request: Request) -> str:
    """Return the SHA-256, in hex, of what a request asks for: of the same job it is the same."""
    return hashlib.sha256(encode(job_of(request), order="sorted")).hexdigest()


def job_of(request: Request) -> Request:
    """Return what a request asks for, without where that goes and how fast, and without secrets."""
    source = request.source
    session = replace(source.session, run_id="", session_sql=())
    routes = request.routes
    if routes is not None:
        routes = tuple(
            replace(each, output=_written_how(each.output), settings=()) for each in routes
        )
    return Request(
        source=replace(source, secret=SecretReference(), session=session),
        selection=request.selection,
        output=_written_how(request.output),
        consistency=request.consistency,
        values=request.values,
        fixed=request.fixed,
        routes=routes,
    )


def _written_how(output: OutputOptions) -> OutputOptions:
    """Return an output without its place: a broken run lies where it was found."""
    encryption = output.encryption
    if encryption is not None:
        # The key itself is compared elsewhere; here it only matters that there is one.
        key = SecretReference(kind="file") if encryption.keyed else SecretReference()
        encryption = EncryptionOptions(
            recipients=encryption.recipients, key=key, key_name=encryption.key_name
        )
    return replace(
        output,
        destination="",
        others=(),
        overwrite=False,
        keep=None,
        latest_link=None,
        encryption=encryption,
        transform=_without_keys(output.transform),
    )


def _without_keys(transform: TransformOptions | None) -> TransformOptions | None:
    """Return a transform without where its keys are found; whether they are the same is no text."""
    return None if transform is None else replace(transform, keys=())


def digest_of_tables_job(asked: TablesRequest) -> str:
    """Return the SHA-256, in hex, of what is asked for, without any secret.

    How fast that is done, how often it is tried, and where secrets are found make no difference.
    """
    document: dict[str, Any] = {
        "to": asked.options.destination,
        "entries": [_bare(entry) for entry in asked.entries],
    }
    routes = [_places(entry) for entry in asked.entries]
    if any(routes):
        # Where the first one goes is said by "to", and where the others go by nothing else.
        document["routes"] = routes
    return hashlib.sha256(encode(document, order="sorted")).hexdigest()


def _places(entry: AskedTables) -> list[tuple[str, ...]]:
    return [each.output.destinations for each in entry.request.routes or ()]


def _bare(entry: AskedTables) -> AskedTables:
    return replace(entry, request=job_of(entry.request), label="")
