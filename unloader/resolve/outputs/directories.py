"""The real directories of a run whose `--to` has fields, and where its earlier runs lie."""

from __future__ import annotations

from msgspec.structs import replace

from unloader.model import Extract, OutputOptions, Request
from unloader.request.directory_names import DirectoryValues, directory_name, has_fields
from unloader.request.settings import part_directory
from unloader.storage.place_names import is_kept
from writers.objects.location import below


def placed(output: OutputOptions, extract: Extract, run_id: str) -> OutputOptions:
    """Return the output of one run, with the fields of its directories filled in.

    Raises:
        ConfigError: A name is empty, or longer than file systems allow.
    """
    directories = is_kept(output.destinations)
    if not directories or not any(map(has_fields, output.destinations)):
        return output
    values = directory_values(extract, run_id)
    first, *others = (directory_name(each, values) for each in output.destinations)
    return replace(output, destination=first, others=tuple(others))


def in_directory_of_part(request: Request) -> Request:
    """Return a request whose files go to directories of its part; streams stay as they are."""
    part = request.selection.part
    if part is None:
        return request

    def within(output: OutputOptions) -> OutputOptions:
        if not is_kept(output.destinations) or not output.destination:
            return output
        name = part_directory(part)
        first, *others = (below(each, name) for each in output.destinations)
        return replace(output, destination=first, others=tuple(others))

    routes = request.routes
    if routes is not None:
        routes = tuple(replace(each, output=within(each.output)) for each in routes)
    return replace(request, output=within(request.output), routes=routes)


def directories_of(output: OutputOptions) -> tuple[str, ...]:
    """Return the directories of an output; none where it is a stream, or nothing is written."""
    kept = is_kept(output.destinations)
    return tuple(filter(None, output.destinations)) if kept else ()


def is_followed(output: OutputOptions) -> bool:
    """Return whether something is to be done once an output is published: see `--keep`."""
    return output.keep is not None or output.latest_link is not None


def directory_values(extract: Extract, run_id: str) -> DirectoryValues:
    """Return what the fields stand for; the date is that of `{date}` in names of files."""
    taken_at = extract.snapshot.taken_at if extract.snapshot else ""
    return DirectoryValues(
        schema=extract.table.schema or "",
        table=extract.table.name,
        # Without a snapshot the day on which the run began, which its id begins with.
        date=taken_at[:10].replace("-", "") or run_id[:8],
        run_id=run_id,
    )
