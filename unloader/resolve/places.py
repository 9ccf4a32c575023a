"""Where the outputs of a run go: directories, the names of their files, and their encryption.

Nothing is taken or written here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from partition_planner.costs import shares
from partition_planner.model import WorkUnit
from unloader.errors import ConfigError, UsageError
from unloader.model import COMPARING, EncryptionOptions, Extract, OutputOptions, Request
from unloader.request.name_templates import (
    Values,
    directories_above,
    directory_name,
    file_name,
    has_fields,
)
from unloader.request.name_templates import above as above_of
from unloader.request.settings import part_directory
from unloader.resolve.resolved import ResolvedTable, of_output
from unloader.secrets.keys import check_identities, identities, parquet_key
from unloader.secrets.secret_places import proof_of
from unloader.storage.place_names import (
    KEPT,
    absolute,
    comparable,
    destination_kind,
    is_kept,
    is_one_stream,
    overlapping,
    path_of,
    pipe_template,
    real,
)
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST, RUN, Storage
from writers.encryption.age import check_recipients
from writers.encryption.parquet import check_format
from writers.model import Compression, ParquetFormat
from writers.objects.location import Location, below, is_location
from writers.registry import extension


def _with_directories(output: OutputOptions, now: Callable[[str], str]) -> OutputOptions:
    """Return an output with other directories; a stream stays as it is."""
    if not output.destination or not is_kept(output.destinations):
        return output
    first, *others = map(now, output.destinations)
    return replace(output, destination=first, others=tuple(others))


def placed(output: OutputOptions, extract: Extract, run_id: str) -> OutputOptions:
    """Return the output of one run, with the fields of its directories filled in."""
    if not any(map(has_fields, output.destinations)):
        return output
    values = directory_values(extract, run_id)
    return _with_directories(output, lambda place: directory_name(place, values))


def at_absolute_places(output: OutputOptions) -> OutputOptions:
    """Return an output with absolute directories, so that each route finds the others on resume."""
    return _with_directories(output, absolute)


def in_directory_of_part(request: Request) -> Request:
    """Return a request whose files go to directories of its part; streams stay as they are."""
    part = request.selection.part
    assert part is not None

    def within(output: OutputOptions) -> OutputOptions:
        return _with_directories(output, lambda place: below(place, part_directory(part)))

    routes = request.routes
    if routes is not None:
        routes = tuple(replace(each, output=within(each.output)) for each in routes)
    return replace(request, output=within(request.output), routes=routes)


def directories_of(output: OutputOptions) -> tuple[str, ...]:
    """Return the directories of an output; none where it is a stream, or nothing is written."""
    return tuple(filter(None, output.destinations)) if is_kept(output.destinations) else ()


def is_followed(output: OutputOptions) -> bool:
    return output.keep is not None or output.latest_link is not None


def directory_values(extract: Extract, run_id: str) -> Values:
    """Return the values of the fields; the date is the date of the snapshot, as in file names."""
    taken_at = extract.snapshot.taken_at if extract.snapshot else ""
    return {
        "schema": extract.table.schema or "",
        "table": extract.table.name,
        # Without a snapshot the day on which the run began, which its id begins with.
        "date": taken_at[:10].replace("-", "") or run_id[:8],
        "run_id": run_id,
    }


def check_places(request: Request, outputs: Sequence[OutputOptions]) -> None:
    """Raise UsageError if two outputs have one directory, or one goes where several cannot."""
    places: list[tuple[str, str]] = []
    links: dict[str, str] = {}
    for route, output in zip(request.routes or (), outputs, strict=True):
        name, to, kind = route.name, output.destination, destination_kind(output.destinations)
        if to and kind not in (*KEPT, "null"):
            raise UsageError(
                f"route {name} writes to {to}, but a run of several routes writes to directories",
                "give it a directory, or run it separately",
            )
        for place in filter(None, output.destinations if kind in KEPT else ()):
            if RUN in comparable(place).parts:
                raise UsageError(
                    f"route {name} writes to {place}, which is inside a directory {RUN}: that "
                    "directory is removed when a run ends",
                    "choose another directory",
                )
            places.append((name, place))
        if output.latest_link is None or not to:
            continue
        parent = os.path.realpath(os.path.dirname(to.rstrip("/")) or ".")
        link = os.path.join(parent, output.latest_link)
        if links.setdefault(link, name) != name:
            raise UsageError(
                f"routes {links[link]} and {name} have the same --latest-link, {link}",
                "give each route a different link",
            )
    paths = [comparable(each) for _, each in places]
    if pair := overlapping(paths):
        (first, one), (second, other) = (places[at] for at in pair)
        same = paths[pair[0]] == paths[pair[1]]
        raise UsageError(
            f"routes {first} and {second} would write to {one} and {other}, "
            + ("which are the same directory" if same else "and one is inside the other"),
            "give each route a separate directory",
        )


def checked_encryption(request: Request) -> EncryptionOptions | None:
    """Return how the files of a run are encrypted, with the proof of the key.

    Raises UsageError if an option does not work with encrypted files, ConfigError for a key that is
    missing or invalid, and FormatError for a missing library or an invalid recipient.
    """
    options = request.output.encryption
    if options is None:
        return None
    if not isinstance(request.output.compression, Compression):
        raise UsageError(
            "--compression measures a sample, which works only with files that are not encrypted",
            "name a codec: --compression zstd",
        )
    if isinstance(request.output.format, ParquetFormat):
        if not options.keyed:
            raise UsageError("Parquet files are encrypted with a key", "give --parquet-key-file")
        check_format(request.output.format)
        return replace(options, key_proof=proof_of(parquet_key(options.key)))
    if options.keyed or not options.recipients:
        raise UsageError("text is encrypted for recipients", "give --encrypt-to")
    check_recipients(options.recipients)
    kind = destination_kind(request.output.destinations)
    if request.output.file_per == "table" and kind in KEPT:
        raise UsageError(
            "--file-per table joins the files of the work units, but encrypted text cannot be "
            "joined",
            "leave --file-per out, or use --format parquet with --parquet-key-file",
        )
    if is_one_stream(kind):
        raise UsageError(
            "--encrypt-to encrypts each work unit separately, but one stream contains all units",
            "encrypt the stream: unloader run ... --to - | age -r RECIPIENT",
        )
    if kind in KEPT and request.verify in COMPARING:
        if options.identity.kind == "none":
            raise ConfigError(
                f"--verify {request.verify} reads the files again, but they are encrypted",
                "give the private key of a recipient: --decrypt-with FILE; or use --verify count",
            )
        check_identities(identities(options.identity), options.recipients)
    return options


def name_values(run: ResolvedTable) -> Values:
    """Return the values of fields that the names of all files of a run share."""
    extract, output = run.extract, run.output
    taken_at = extract.snapshot.taken_at if extract.snapshot else ""
    return {
        "schema": extract.table.schema or "",
        "table": extract.table.name,
        "partition": "",
        "unit": "",
        # A unit may have several files, which are numbered from 1.
        "part": "1" if output.options.file_size_bytes else "",
        "ext": extension(output.format, output.compression, output.spec("").encryption),
        "date": taken_at[:10].replace("-", ""),
    }


def names_of(template: str, values: Values, unit: WorkUnit | None) -> Callable[[int], str]:
    """Return the function from the number of a unit's file, from 0, to its name; to be pickled.

    None is the one file of all units. OutputFailed is raised for a name that is too long.
    """
    return partial(file_name, template, values if unit is None else values_of(values, unit))


def values_of(values: Values, unit: WorkUnit) -> Values:
    """Return the values of fields in the names of a unit's files."""
    return {**values, "partition": unit.partition or "", "unit": unit.id}


def places(run: ResolvedTable) -> dict[str, str]:
    """Return for each unit the file, the first of several files, or the pipe that it goes to.

    Empty where the run has no destination, or several outputs.
    """
    if len(run.outputs) > 1:
        return {}
    run = of_output(run, 0)
    output, units = run.output.options, run.plan.units
    kind = destination_kind(output.destinations)
    if not output.destination or kind == "stdout":
        return {unit.id: "standard output" for unit in units if output.destination}
    if kind == "null":
        return {unit.id: output.destination for unit in units}
    if kind in KEPT:
        template = output.file_name
        folders = [path_of(each) for each in output.destinations]
    else:
        folder, template = pipe_template(output.destination)
        folders = [folder]
    one = kind == "pipe" or (kind in KEPT and output.file_per == "table")
    values, striped = name_values(run), shares(run.plan, len(folders))
    found = {}
    for unit in units:
        name = names_of(template, values, None if one else unit)(0)
        found[unit.id] = str(folders[0 if one else striped[unit.id]] / name)
    return found


_MOST_LEVELS = 8
"""The levels up to which a home is looked for. `{schema}` and `{table}` may be several levels."""


def home_of(template: str, runs: Sequence[ResolvedTable]) -> str:
    """Return the directory around the directories of all tables.

    `template` is the directory of `--to`, with its fields; empty where each table has another one.
    Raises UsageError without a common parent, or if a table goes to the home itself.
    """
    if is_dropped(template):
        return template
    if not template:
        # The deepest directory, or prefix of one bucket, that contains all directories.
        parents = [path_of(absolute(run.output.options.destination)).parent for run in runs]
        first, found = parents[0], ""
        stores = [each for each in parents if isinstance(each, Location)]
        if not isinstance(first, Location):
            found = os.path.commonpath(list(map(str, parents))).removesuffix("/")
        elif len(stores) == len(parents) and {each.store for each in stores} == {first.store}:
            key = os.path.commonpath([f"/{each.key}" for each in stores]).strip("/")
            found = str(replace(first, key=key)) if key else ""
        if not found:
            raise UsageError(
                "the directories of the tables have no common parent, and the options give no "
                "place for the manifest of the run",
                "write to = '/DIRECTORY/{schema}.{table}' at the top of the job file: the manifest "
                "goes to /DIRECTORY",
            )
        return found
    home = above_of(template, directories_above(template))
    if has_fields(home):
        home = directory_name(home, directory_values(runs[0].extract, runs[0].run_id))
    home = home or ("/" if template.startswith("/") else ".")
    here = real(home)
    for run in runs:
        for number, output in enumerate(run.outputs):
            if here in map(real, directories_of(output.options)):
                route = run.request.routes[number].name if run.request.routes else ""
                label = f"{run.extract.table.label}{f', route {route},' if route else ''}"
                raise at_home(label, home)
    return home


def at_home(what: str, home: str) -> UsageError:
    """Return the error of an output that would be written to the home itself."""
    return UsageError(
        f"{what} would be written to {home}, which is for the manifest of the run",
        f"give it a separate directory: {home}/NAME",
    )


def is_finished(destination: str) -> bool:
    try:
        return MANIFEST in storage_at(destination).names(destination)
    except OSError:
        return False


def is_dropped(home: str) -> bool:
    """Return whether the output of all tables is dropped, so that a home is not needed."""
    return destination_kind((home,)) == "null"


def home_above(storage: Storage, place: str, run_id: str) -> str:
    """Return the home of the run over several tables to which a directory belongs; "" if none."""

    def is_of_run(home: str) -> bool:
        who = storage.who_was_here(home, counted=False)
        return who is not None and who.run_id == run_id

    below = absolute(place)
    for _ in range(_MOST_LEVELS):
        above = str(Location.parse(below).parent) if is_location(below) else os.path.dirname(below)
        if above == below:
            break
        if is_of_run(above):
            return above
        below = above
    # The home of a route need not be above it, so its lock names it.
    here = storage.who_was_here(place, counted=False)
    named = here.home if here is not None and here.run_id == run_id else ""
    return named if named and is_of_run(named) else ""
