"""What follows a run once it is published: the link to it, and the end of older runs."""

from __future__ import annotations

from pathlib import Path

from unloader.events import Notice, Observer
from unloader.manifest.model import Manifest
from unloader.request.directory_names import beside
from unloader.resolve.places import directory_values
from unloader.resolve.resolved import ResolvedRun
from unloader.retention.earlier_runs import newer_run, other_runs, why_kept
from unloader.retention.link import check_link, link_of, switch_link
from unloader.retention.removing import finish_removals, remove
from unloader.retention.unfinished import remove_unfinished


def check_before(run: ResolvedRun, directory: str) -> None:
    """Check, before anything is read, that nothing is in the way of what follows the run.

    Raises:
        OutputFailed: The name of the link belongs to something else.
    """
    output = run.output.options
    if output.latest_link is not None:
        check_link(directory, output.latest_link)


def follow(run: ResolvedRun, manifest: Manifest, directory: str, observe: Observer) -> None:
    """Switch the link to a run that is published, then remove what is older than `--keep`.

    What cannot be removed stays, and is reported: the new run is complete all the same. A run that
    was broken off and resumed may be older than another one by now: the link stays with that.

    Raises:
        FollowUpFailed: The link could not be switched; nothing is removed then.
    """
    output = run.output.options
    if output.latest_link is not None:
        link = link_of(directory, output.latest_link)
        if newer := newer_run(link, manifest):
            observe(Notice(text=f"{link} still leads to run {newer}, which is newer"))
        else:
            switch_link(directory, output.latest_link, run.run_id)
    if output.keep is not None:
        for text in _removed(run, manifest, output.keep):
            observe(Notice(text=text))


def _removed(run: ResolvedRun, manifest: Manifest, keep: int) -> list[str]:
    """Remove older runs; return what is to be told."""
    if manifest.verified.result != "ok":
        return ["no earlier run is removed, because the rows of this run could not be verified"]
    values = directory_values(run.extract, run.run_id)
    asked = (beside(each, values) for each in run.request.output.destinations)
    allowed = tuple((Path(parent), names) for parent, names in asked)
    try:
        finish_removals(allowed[0][0])
        others = other_runs(*allowed[0], manifest)
    except OSError as error:
        return [f"cannot look for earlier runs, so no run is removed: {error}"]
    newer = sum(each.manifest.run_id > manifest.run_id for each in others)
    older = others[newer:]
    told = []
    for each in reversed(older[max(0, keep - 1 - newer) :]):
        what = f"run {each.manifest.run_id} in {each.directories[0]}"
        try:
            why = why_kept(each, allowed)
            if not why:
                remove(each)
        except OSError as error:
            why = str(error)
        told.append(
            f"{what} is kept: {why}" if why else f"removed {what}, because of --keep {keep}"
        )
    ids = [each.manifest.run_id for each in others]
    return told + remove_unfinished(*allowed[0], manifest, ids, keep)
