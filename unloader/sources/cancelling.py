"""Calls of the parent into its source that a signal may cut short."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager

from unloader.errors import Interrupted
from unloader.model import SourceSpec
from unloader.sources.base import Catalog
from unloader.sources.registry import source_of

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 5.0
"""Before a source that did not react to a cancel is asked again."""


@contextmanager
def cancelled_by(stop: Callable[[], bool], catalog: Catalog) -> Iterator[None]:
    """Cancel what the catalog does inside the block as soon as `stop` returns True.

    Without it a count of hours, or a wait for a lock, would be deaf to Ctrl-C until it returns.

    Args:
        stop: Asked several times a second, in a thread of its own.
        catalog: Its `cancel` is called from that thread.

    Raises:
        Interrupted: In place of whatever the cancelled call raised.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_SECONDS):
            if stop():
                catalog.cancel()
                over.wait(_PATIENCE_SECONDS)

    watcher = threading.Thread(target=watch, name="stop", daemon=True)
    watcher.start()
    try:
        yield
        if stop():
            # What was going on was the program's own, and had nobody to cancel it.
            raise Interrupted("stopped by a signal")
    except Interrupted:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if stop():
            raise Interrupted("stopped by a signal while the source was queried") from error
        raise
    finally:
        over.set()
        watcher.join()


def open_unless(stop: Callable[[], bool], spec: SourceSpec) -> Catalog:
    """Open a source in the parent; stop waiting for it as soon as `stop` returns True.

    A host that takes a connection and says nothing would be waited for, deaf to Ctrl-C, until the
    driver gives up.

    Args:
        stop: Asked several times a second.
        spec: The source.

    Raises:
        Interrupted: `stop` returned True.
        UnloaderError: As `Source.open_catalog` raises it.
    """
    source = source_of(spec.kind)
    if not source.waits_for_network:
        return source.open_catalog(spec)
    done: Future[Catalog] = Future()

    def connect() -> None:
        try:
            done.set_result(source.open_catalog(spec))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=connect, name="connect", daemon=True).start()
    while True:
        try:
            return done.result(_POLL_SECONDS)
        except NotYet:
            if done.done():
                raise  # The source's own.
        if stop():
            raise Interrupted("stopped by a signal while connecting")
