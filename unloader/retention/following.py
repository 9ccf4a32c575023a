"""What follows a run once it is published: the link to it, and the end of older runs.

If the directory of all tables is another one each night, it is kept or removed as a whole. If the
directory of each table is, each table has its own link and earlier runs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from unloader.errors import FollowUpFailed, OutputFailed, UsageError
from unloader.events import Notice, Observer
from unloader.manifest.model import Manifest, TablesManifest
from unloader.request.name_templates import beside, home_template, is_dated
from unloader.resolve.places import directory_values, is_followed
from unloader.resolve.resolved import ResolvedTable
from unloader.retention.older_runs import found_at, is_same_job, remove_older

if TYPE_CHECKING:
    from unloader.selection.choice import TablesRequest


class Following(Struct, kw_only=True):
    """The links and removals that are requested, and the first one that failed."""

    run: ResolvedTable
    """Any of the tables: the options are the same for all of them."""
    home: str
    of: Literal["nothing", "each table", "the run"]
    failed: FollowUpFailed | None = None

    @classmethod
    def of_run(cls, run: ResolvedTable, home: str, template: str | None) -> Following:
        """Return what follows a run; `template` is `--to` of several tables, else None."""
        if not any(is_followed(each.options) for each in run.outputs):
            return cls(run=run, home=home, of="nothing")
        whole = template is not None and is_dated(home_template(template))
        return cls(run=run, home=home, of="the run" if whole else "each table")

    @classmethod
    def check_asked(cls, asked: TablesRequest) -> None:
        """Refuse, before the source is opened, to remove all tables as a whole beside routes."""
        requests = [entry.request for entry in asked.entries if len(entry.request.of_outputs()) > 1]
        outputs = [each.output for request in requests for each in request.of_outputs()]
        whole = is_dated(home_template(asked.options.destination))
        if whole and any(map(is_followed, outputs)):
            raise UsageError(
                "--keep and --latest-link apply here to the directory of all tables, but some "
                "routes of a table are outside it",
                "apply them to each table: --to '/extract/{table}/{date}'",
            )

    def check_before(self) -> None:
        """Raise OutputFailed, before anything is read, if the name of a link is taken."""
        for output in self.run.outputs:
            link = output.options.latest_link
            if link is not None:
                _link_of(self.home if self.of == "the run" else output.options.destination, link)

    def after(
        self, run: ResolvedTable, manifest: Manifest | TablesManifest, observe: Observer
    ) -> None:
        """Do what follows the publication of one output of a table, or of all; never raises."""
        several = isinstance(manifest, TablesManifest)
        if self.of != ("the run" if several else "each table"):
            return
        try:
            place = self.home if several else run.output.options.destination
            follow(run, manifest, place, observe)
        except FollowUpFailed as error:
            self.failed = self.failed or error


def follow(
    run: ResolvedTable, manifest: Manifest | TablesManifest, place: str, observe: Observer
) -> None:
    """Switch the link to a published run, then remove runs older than `--keep`.

    What cannot be removed stays, and is reported: the new run is complete all the same. A resumed
    run may be older than another one by now: the link stays with that one.

    Args:
        run: A single table with one output, or any of several tables.
        place: The directory of the manifest.

    Raises:
        FollowUpFailed: The link could not be switched; nothing is removed then.
    """
    output = run.output.options
    if output.latest_link is not None:
        link = Path(place.rstrip("/")).parent / output.latest_link
        there = found_at(link)
        newer = there is not None and there.manifest and there.run_id > manifest.run_id
        if there is not None and newer and is_same_job(there, manifest):
            observe(Notice(text=f"{link} still leads to run {there.run_id}, which is newer"))
        else:
            _switch(link, place, manifest.run_id)
    if output.keep is None:
        return
    if isinstance(manifest, TablesManifest):
        places: tuple[str, ...] = (home_template(run.request.output.destination),)
        is_verified = all(each.verified == "ok" for each in manifest.tables)
        what = "not all tables of this run could be verified"
    else:
        places, is_verified = run.request.output.destinations, manifest.verified.result == "ok"
        what = "the rows of this run could not be verified"
    if not is_verified:
        observe(Notice(text=f"no earlier run is removed, because {what}"))
        return
    values = directory_values(run.extract, run.run_id)
    found = (beside(each, values) for each in places)
    allowed = tuple((Path(parent), names) for parent, names in found)
    for text in remove_older(manifest, allowed, output.keep):
        observe(Notice(text=text))


def _link_of(directory: str, name: str) -> Path:
    """Return the path of a link; raise OutputFailed if something else has that name."""
    link = Path(directory.rstrip("/")).parent / name
    if os.path.lexists(link) and not link.is_symlink():
        raise OutputFailed(
            f"{link} exists and is not a symbolic link",
            "remove it, or choose another name with --latest-link",
        )
    return link


def _switch(link: Path, directory: str, run_id: str) -> None:
    """Let the link lead to a directory; a reader finds the former run or the new one."""
    made = link.with_name(f".{link.name}-{run_id}")
    name = os.path.basename(directory.rstrip("/"))
    try:
        _link_of(directory, link.name)
        with suppress(FileNotFoundError):
            os.unlink(made)  # Of this run, which was killed just here.
        os.symlink(name, made)
        os.replace(made, link)
    except (OSError, OutputFailed) as error:
        with suppress(OSError):
            os.unlink(made)
        why = error.strerror if isinstance(error, OSError) else error.message
        raise FollowUpFailed(
            f"the run is complete in {directory}, but the link {link} still leads to another "
            f"place: {why}",
            f"set it by hand: ln -sfn {name} {link}",
        ) from error
