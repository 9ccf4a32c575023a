"""Rows go out: runs are started and continued."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unloader.errors import translated
from unloader.events import Observer, silent
from unloader.manifest.model import answer
from unloader.model import ClusterOptions, EncryptionOptions, Request, SecretReference
from unloader.resolve.broken_run import find_broken_run
from unloader.resolve.resolved import ResolvedTable
from unloader.run import resuming, starting
from unloader.selection.choice import TablesRequest
from unloader.storage.place_names import AnyPlace

if TYPE_CHECKING:
    from unloader.transforms.model import MaskingKey


def unload(
    asked: Request | TablesRequest,
    *,
    planned: ResolvedTable | None = None,
    resume: bool = False,
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Unload a table or a query, or several at one snapshot; return the manifest's JSON document.

    A request for one table gives a `unloader.manifest.model.Manifest`. With several routes it is a
    document with a list `routes` of them. Of a run over several tables it is a
    `unloader.manifest.model.TablesManifest`, which is in the directory that contains the
    directories of the tables. Each of these has its own manifest.

    Args:
        asked: What, where and how. `TablesRequest.of` makes a run over several tables.
        planned: A run of one table that `plan` returned, whose units and codec are used.
        resume: Continue an interrupted run of the same job in the destination. A new run starts
            where the destination has no such run, or the run's snapshot cannot be read any more; a
            notice reports it.
        observe: Reports what happens; called in this thread.
        stop: Asked several times a second; True ends the run cleanly.

    Raises:
        UnloaderError: One of the tree in `unloader.errors`, by what went wrong. PartialUnload if
            some tables are not complete, although the others are.
    """

    with translated():
        asked = TablesRequest.one(asked) if isinstance(asked, Request) else asked
        begin = resuming.resume_or_start if resume else starting.start
        return answer(begin(asked, planned, observe=observe, stop=stop))


def finished(asked: Request | TablesRequest) -> dict[str, Any] | None:
    """Return the document of a finished run of the same job, or None.

    It is looked for where the run would go. With `{date}`, and for a table of a lakehouse, it is a
    run of today (UTC). Nothing is changed, and the source is not opened.

    Args:
        asked: As for `unload`, whose answer this is.

    Raises:
        UnloaderError: OutputFailed if a place cannot be looked at.
    """

    with translated():
        asked = TablesRequest.one(asked) if isinstance(asked, Request) else asked
        found = starting.finished(asked)
        return None if found is None else answer(found)


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
        destination: Any directory of the run; for a run over several tables, the directory above
            all of them.
        secret: Where the password is found now; None is where it was.
        session_sql: The first statements of the sessions; no record holds them.
        cluster: The new cluster of the workers; its empty fields keep the run's values.
        parallelism: Number of workers from now on; 0 is the number of usable cores, None is as the
            run had it.
        new_snapshot: Read everything again at a new snapshot, with the options of the run.
        keys: Where the keys of encrypted files are found now; None is where they were.
        masking_keys: Where keys of masks are found now; the others are where they were.
        observe: Reports what happens; called in this thread.
        stop: Asked several times a second; True ends the run cleanly.

    Raises:
        UnloaderError: SnapshotGone if the snapshot cannot be read any more, OutputFailed without a
            run to resume, and all errors of `unload`.
    """

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
    """Return the request of an interrupted run in a directory, or None.

    For a run over several tables it is the request for all; it names neither a table nor a query.

    Raises:
        UnloaderError: OutputFailed if that run is active, or cannot be read.
    """

    with translated():
        broken = find_broken_run(str(destination))
        return None if broken is None else broken.request
