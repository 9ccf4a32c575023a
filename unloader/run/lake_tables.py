"""What the user is told of commits to tables of a lakehouse."""

from __future__ import annotations

from unloader.errors import OutputFailed
from unloader.events import Notice, Observer, PhaseStarted
from unloader.lakehouse.lake_formats import lake_kind
from unloader.manifest.model import Manifest
from unloader.model import Request
from unloader.storage.opening import storage_at


def commit(manifest: Manifest, place: str, observe: Observer, *, is_own: bool) -> bool:
    """Make a published run part of its table, if it has one; return whether that was new.

    Raises:
        OutputFailed: See `unloader.lakehouse.lake_runs.commit_run`.
        ConfigError: See there.
    """
    if manifest.lake_table is None:
        return False
    # Imported on use: most runs are not for a table.
    from unloader.lakehouse.lake_runs import commit_run

    observe(PhaseStarted(phase="committing"))
    done = commit_run(manifest, place, is_own=is_own)
    name = manifest.lake_table.name
    if done.is_new:
        observe(Notice(text=f"committed to {name}: snapshot {done.snapshot}"))
    else:
        observe(Notice(text=f"already committed to {name}: snapshot {done.snapshot}"))
    return done.is_new


def check_before(request: Request, observe: Observer) -> None:
    """Tell of earlier runs for a table that are not part of it.

    Raises:
        OutputFailed: One is complete: whether its rows are wanted is the user's to say.
    """
    names = {each.output.destination for each in request.of_outputs()}
    for name in filter(lake_kind, sorted(names)):
        from unloader.lakehouse.lake_runs import has_begun, uncommitted

        for place, manifest in uncommitted(name):
            if manifest is not None:
                raise OutputFailed(
                    f"run {manifest.run_id} is complete in {place}, but it is not committed to "
                    f"{name}",
                    f"commit it with: unloader resume '{place}'; or remove it with: unloader clean "
                    f"'{place}'",
                )
            who = storage_at(place).who_was_here(place, counted=False)
            if who is not None and not who.is_running:
                text = f"run {who.run_id} for {name} was interrupted in {place}: "
                if has_begun(place):
                    text += f"resume it with: unloader resume '{place}'; or "
                text += f"remove it with: unloader clean '{place}'"
                observe(Notice(text=text))
