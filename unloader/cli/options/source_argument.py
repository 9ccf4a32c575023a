"""The positional SOURCE of `run` and `plan`: a URL, a plan file, a job file, or a URL and a file.

A plan file is a job file, too: it carries the options it was made with, and the plan in addition.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.json import decode, encode

from unloader.cli.options.command import JobOption
from unloader.cli.options.request_of import check_statements, routes_at
from unloader.errors import ConfigError, PlanFailed, UsageError
from unloader.lakehouse.lake_formats import lake_kind
from unloader.nouns import counted
from unloader.request.locations import database_in, looks_like_source
from unloader.request.options import options_of
from unloader.request.settings import at_home
from unloader.resolve.resolved import checked_version
from unloader.sources.registry import KINDS, url_form
from unloader.storage.place_names import PlacePath, path_of
from unloader.storage.storage_protocol import MANIFEST, RUN
from writers.errors import FormatError
from writers.files.regular import read_regular

if TYPE_CHECKING:
    from unloader.request.job_files import JobFile, Mistake

SOURCE = "source"
"""Key of a job file and of a plan file's job."""

JOB_DIGEST = "job_digest"
"""Key of a plan file with the digest of its job, which may not be edited any more than the plan."""

JOB = "job"
"""Key of a plan file with the source and the options."""

ROUTES = "routes"
"""Key of a plan file's job with its routes; missing without routes."""

_HOME_FILE = re.compile(r"([a-z][a-z0-9+.-]*):(?:///?)?~/", re.IGNORECASE)
"""What begins a URL of a file in the home directory, in each of its spellings."""


class SourceArgument(Struct, frozen=True, kw_only=True):
    """The value of SOURCE: where the data is, and the plan if there is one."""

    url: str
    plan: dict[str, Any] | None = None
    """The content of a plan file."""
    plan_file: str = ""
    job: JobFile | None = None
    """A job file that has several tables; the options belong to the first."""


def source_argument(
    *, plans: bool, required: bool = True, tables: bool = False
) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """Return the decorator for SOURCE; it is read first, so that a file sets the options.

    SOURCE may be a plan file with `plans`, and a job file with several tables with `tables`. If it
    is not required and missing, the URL is empty.
    """
    what = "SOURCE|PLAN.json|JOB.toml" if plans else "SOURCE|JOB.toml"

    def read(
        ctx: click.Context, argument: click.Parameter, given: tuple[str, ...]
    ) -> SourceArgument:
        files = [each for each in given if "://" not in each and _is_file(each)]
        urls = [each for each in given if each not in files]
        for each in given:
            if "://" not in each and each and Path(each).is_dir():
                run = (Path(each) / RUN).is_dir()
                is_run = run or (Path(each) / MANIFEST).is_file()
                raise UsageError(
                    f"{each} is a directory, and not a source, a plan or a job file",
                    "name a source such as duckdb:///PATH, a plan *.json or a job file *.toml"
                    + (f"; {_of_run(Path(each), finished=not run)}" if is_run else ""),
                )
        if len(files) > 1 or len(urls) > 1:
            raise click.UsageError(f"{len(given)} arguments are too many for {what}", ctx)
        url = urls[0] if urls else ""
        if "://" not in url and Path(url).is_file():
            raise UsageError(
                f"{url} is a file, and not a source URL, a job file or a plan",
                f"name a job file *.toml and a plan *.json; a database in a file is written "
                f"{database_in(url) or 'duckdb'}://{Path(url).absolute()}",
            )
        if not files:
            return SourceArgument(url=url)
        if files[0].lower().endswith(".toml"):
            return _read_job(ctx, files[0], url, tables=tables)
        plan = _load_plan(files[0])
        if not plans:
            raise UsageError(
                f"the file {files[0]} is a finished plan already",
                f"unload it: unloader run {shlex.quote(files[0])}",
            )
        return _read_plan(ctx, files[0], plan, url)

    return click.argument(
        "argument", metavar=what, nargs=-1, required=required, is_eager=True, callback=read
    )


def job_digest(job: dict[str, Any]) -> str:
    """Return the SHA-256, in hex, of the canonical JSON of a plan file's job."""
    return hashlib.sha256(encode(job, order="sorted")).hexdigest()


def finished_directory(ctx: click.Context, argument: click.Parameter, place: str) -> PlacePath:
    """Return DEST of a command that looks at an earlier run; a source in its place is refused.

    The name of a table means the directory of its run.
    """
    if lake_kind(place) is not None:
        from unloader.lakehouse.lake_runs import home_of

        return path_of(home_of(place))
    if looks_like_source(place, KINDS):
        raise UsageError(
            "DEST looks like a source, and is not shown",
            f"write unloader {ctx.info_name} DEST; write ./NAME if this is the name of a directory",
        )
    try:
        found = path_of(place)
    except FormatError as error:
        raise UsageError(error.message, error.hint) from None
    if isinstance(found, Path) and found.is_file() and ctx.info_name != "report":
        where = shlex.quote(str(found.parent))
        raise UsageError(
            f"{found} is a file, and DEST is the directory of a run",
            f"name its directory: unloader {ctx.info_name} {where}",
        )
    return found


def finished_directories(
    ctx: click.Context, argument: click.Parameter, places: tuple[str, ...]
) -> tuple[PlacePath, ...]:
    """Return several DESTs; the name of a table means all runs that are not part of it."""
    if any(map(lake_kind, places)):
        from unloader.lakehouse.lake_runs import uncommitted

        homes = [
            [at for at, _ in uncommitted(each)] if lake_kind(each) else [each] for each in places
        ]
        places = tuple(place for found in homes for place in found)
    return tuple(finished_directory(ctx, argument, place) for place in places)


def _is_file(text: str) -> bool:
    return text.lower().endswith((".toml", ".json"))


def _read_job(ctx: click.Context, path: str, url: str, *, tables: bool) -> SourceArgument:
    # Imported on use, here and below: most runs have no job file.
    from unloader.request.job_files import as_given, read_job

    own = {
        each.declared.key: each.declared
        for each in ctx.command.params
        if isinstance(each, JobOption)
    }

    def first(mistake: Mistake) -> None:
        raise mistake.error

    options = {option.key: option for option in options_of("run")}
    job = read_job(Path(path), tuple(options.values()), first, own)
    if len(job.tables) > 1 and not tables:
        raise UsageError(
            f"this command takes one table, and {job.path} has {len(job.tables)}",
            "write a job file for each, and put their common keys into a file that they include",
        )
    table = job.tables[0] if job.tables else None
    route = job.only_route(table)
    values = job.values_of(table, route)
    check_statements(values)
    ctx.obj.job_file, ctx.obj.job_values = path, values
    routes = job.routes_of(table)
    ctx.obj.routes = routes if len(routes) > 1 and "route" in own else ()
    if len(routes) > 1 and not ctx.obj.routes:
        raise UsageError(
            f"{ctx.info_name} handles one output, and {path} has {counted(len(routes), 'route')}",
            "write a job file with one of them",
        )
    defaults = {
        key: as_given(options[key], given.value)
        for key, given in values.items()
        # Some options of other commands share only the name with an option of run.
        if key not in own
        or (own[key].owner, own[key].field) == (options[key].owner, options[key].field)
    }
    if not tables and isinstance(names := defaults.get("table"), list):
        (items,) = names
        if isinstance(items, tuple) and len(items) != 1:
            raise UsageError(
                f"this command takes one table, and {values['table'].where()} has {len(items)}",
                "give --table with one of them",
            )
        defaults["table"] = items[0] if isinstance(items, tuple) else items
    ctx.default_map = defaults
    return SourceArgument(url=url or source_of_job(job), job=job if len(job.tables) > 1 else None)


def source_of_job(job: JobFile) -> str:
    """Return the URL of the source that a job file names; `~/` of a file is the home directory.

    Raises:
        UsageError: It names none.
    """
    given = job.source
    url = "" if given is None or not isinstance(given.value, str) else given.value
    if given is None or not url or _is_file(url):
        raise UsageError(
            f"{job.path} names no source", 'write source = "duckdb:///path/to/file.db"'
        )
    match = _HOME_FILE.match(url)
    kind = KINDS.get(match[1].lower()) if match is not None else None
    if match is None or kind is None or url_form(kind).what != "file":
        return url
    try:
        return f"{match[1]}://{at_home('~/')}{url[match.end() :]}"
    except ValueError as error:
        raise UsageError(f"{given.place}: {error}", "write the path in full") from error


def _read_plan(ctx: click.Context, path: str, document: dict[str, Any], url: str) -> SourceArgument:
    from unloader.request.job_files import as_given

    job = document.get(JOB)
    if not isinstance(job, dict):
        raise _no_plan(path, "holds no plan")
    if document.get(JOB_DIGEST) != job_digest(job):
        raise _no_plan(path, "was edited after it was made: the digest of its job differs")
    values = {name.replace("-", "_"): value for name, value in job.items()}
    # The plan has decided these options; a variable set for all jobs must not seem to change them.
    options = {option.key: option for option in options_of("run")}
    ctx.meta[JobOption.WITHOUT_VARIABLE] = {each.key for each in options.values() if each.planned}
    written, routes = values.pop(SOURCE, None), values.pop(ROUTES, None)
    source = url or written
    ctx.obj.job_file, ctx.obj.planned = path, True
    if routes:
        ctx.obj.routes = routes_at(path, routes)
    if not values.keys() <= options.keys():
        raise _no_plan(path, "has an unknown option")
    ctx.default_map = {key: as_given(options[key], value) for key, value in values.items()}
    if not isinstance(source, str) or not source or _is_file(source):
        raise UsageError(f"{path} names no source", 'write source = "duckdb:///path/to/file.db"')
    return SourceArgument(url=source, plan=document, plan_file=path)


def _load_plan(path: str) -> dict[str, Any]:
    try:
        document = decode(read_regular(Path(path), follow=True))
    except OSError as error:
        raise ConfigError(
            f"the plan file {path} cannot be read: {error.strerror}", "check the path"
        ) from error
    except (ValueError, RecursionError) as error:
        raise _no_plan(path, f"is not JSON: {error}") from error

    if isinstance(document, dict) and "run_id" in document and JOB_DIGEST not in document:
        place = Path(path)
        what = "the manifest" if place.name == MANIFEST else "a record"
        home = place.parent.parent if place.parent.name == RUN else place.parent
        raise UsageError(
            f"{path} is {what} of the run {document['run_id']}, and not a plan",
            f"{_of_run(home, finished=document.get('status') == 'complete')}; to unload again, "
            "name the source, the plan or the job file of the run",
        )
    # Before its options are looked at: another version may have other names.
    try:
        return checked_version(document)
    except PlanFailed as error:
        raise PlanFailed(f"{path} cannot be used: {error.message}", error.hint) from error


def _of_run(home: Path, *, finished: bool) -> str:
    """Return the advice on a run in a directory that was named where a source belongs."""
    where = shlex.quote(str(home))
    if finished:
        return f"check the finished run with: unloader verify {where}"
    return f"continue the unfinished run with: unloader resume {where}"


def _no_plan(path: str, problem: str) -> PlanFailed:
    return PlanFailed(
        f"the plan file {path} {problem}", "make it again: unloader plan SOURCE --output FILE"
    )
