"""Rows go out: runs are started and continued."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unloader.api.translation import translated
from unloader.events import Observer, silent
from unloader.model import ClusterOptions, EncryptionOptions, Request, SecretReference
from unloader.resolve.resolved import ResolvedRun
from unloader.storage.place_names import AnyPlace

if TYPE_CHECKING:
    from unloader.selection.asked import TablesRequest
    from unloader.transforms.model import MaskingKey


def unload(
    request: Request,
    *,
    planned: ResolvedRun | None = None,
    resume: bool = False,
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Unload a table or query into files; return the manifest's JSON document.

    It is a `unloader.manifest.model.Manifest`. Of a run with several routes it is a document with a
    list `routes` of them.

    Args:
        request: What, where and how.
        planned: A run that `plan` returned, whose units and codec are taken.
        resume: Go on with a run of the same job that was broken off in the destination. The run
            begins anew where there is none, where that was another job, and where its snapshot
            cannot be read any more; a notice says so.
        observe: Reports what happens; called in this thread.
        stop: Asked several times a second; True ends the run cleanly.

    Raises:
        UnloaderError: One of the tree in `unloader.errors`, by what went wrong.
    """
    from unloader.manifest.model import answer
    from unloader.run.resuming import resume_or_start
    from unloader.run.starting import start

    with translated():
        begin = resume_or_start if resume else start
        return answer(begin(request, planned, observe=observe, stop=stop))


def unload_tables(
    asked: TablesRequest,
    *,
    resume: bool = False,
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Unload several tables and queries at one snapshot; return the JSON document of the run.

    Each table has a separate directory and manifest, as if `unload` had written it. The manifest of
    the run is in the directory that contains theirs; it is a
    `unloader.manifest.model.TablesManifest`.

    Args:
        asked: Which tables, and how; `TablesRequest.of` makes it of the requests for them.
        resume: As for `unload`, with a broken run of the same tables and patterns.
        observe: Reports what happens; called in this thread.
        stop: Asked several times a second; True ends the run cleanly.

    Raises:
        UnloaderError: PartialUnload if some of the tables are not complete, although the others
            are; and whatever `unload` raises.
    """
    from unloader.manifest.model import answer
    from unloader.run.starting import start_tables

    with translated():
        if resume:
            from unloader.run.resuming import resume_or_start_tables

            return answer(resume_or_start_tables(asked, observe=observe, stop=stop))
        return answer(start_tables(asked, observe=observe, stop=stop))


def finished(asked: Request | TablesRequest) -> dict[str, Any] | None:
    """Return the document of a finished run of the same job; None if there is none.

    It is looked for where the run would go. With `{date}`, and for a table of a lakehouse, it is a
    run of today (UTC). Nothing is changed, and the source is not opened.

    Args:
        asked: As for `unload` or `unload_tables`, whose answer this is.

    Raises:
        UnloaderError: OutputFailed if a place cannot be looked at.
    """
    from unloader.manifest.model import answer
    from unloader.run.finished import finished_run, finished_tables

    with translated():
        if isinstance(asked, Request):
            manifests = finished_run(asked)
            return answer(manifests) if manifests else None
        manifest = finished_tables(asked)
        return None if manifest is None else answer(manifest)


def resume(
    destination: AnyPlace,
    *,
    secret: SecretReference | None = None,
    session_sql: tuple[str, ...] = (),
    parallelism: int | None = None,
    cluster: ClusterOptions | None = None,
    new_snapshot: bool = False,
    keys: EncryptionOptions | None = None,
    masking_keys: tuple[MaskingKey, ...] = (),
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Go on with a run that was stopped, failed or killed; return the manifest's JSON document.

    Of a run over several tables that is the manifest of all; tables that are published already are
    not read again.

    The same rows are read at the same snapshot. Units that were done are kept, once their files
    were read again and have the recorded checksums. Of a run that is finished the manifest is
    returned.

    Args:
        destination: Any directory of the run; of one over several tables that of all of them.
        secret: Where the password is found now; None is where it was.
        session_sql: What the sessions ran first; no record holds it.
        cluster: Where workers work from now on; what is None in it is as the run had it.
        parallelism: Number of workers from now on; 0 is the number of usable cores, None is as the
            run had it.
        new_snapshot: Read everything again at a new snapshot, with the options of the run.
        keys: Where the keys of encrypted files are found now; None is where they were.
        masking_keys: Where keys of masks are found now; the others are where they were.
        observe: Reports what happens; called in this thread.
        stop: Asked several times a second; True ends the run cleanly.

    Raises:
        UnloaderError: SnapshotGone if the snapshot cannot be read any more, OutputFailed if there
            is nothing to resume; and whatever `unload` raises.
    """
    from unloader.manifest.model import answer
    from unloader.run import resuming

    again = resuming.Resumption(
        secret=secret,
        session_sql=session_sql,
        parallelism=parallelism,
        cluster=cluster,
        new_snapshot=new_snapshot,
        keys=keys,
        masking_keys=masking_keys,
    )
    with translated():
        return answer(resuming.resume(str(destination), again, observe=observe, stop=stop))


def interrupted(destination: AnyPlace) -> Request | None:
    """Return what the run was asked that was broken off in a directory; None if there is none.

    Of a run over several tables it is what was asked for all; it names no table and no query.

    Raises:
        UnloaderError: OutputFailed if that run goes on, or cannot be read.
    """
    from unloader.resolve.broken_run import find_broken_run

    with translated():
        broken = find_broken_run(str(destination))
        return None if broken is None else broken.request
