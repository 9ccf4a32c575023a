"""How an error crosses from a worker to the parent: as data, translated here in both directions."""

from __future__ import annotations

import logging
import traceback

from unloader.errors import UnloaderError, error_class, translate
from unloader.model import AttemptFailure

logger = logging.getLogger(__name__)


def failure_of(error: BaseException) -> AttemptFailure:
    """Return an exception as data, under the class of `unloader.errors` it belongs to.

    What belongs to none of them is a fault of the program, which no further attempt can mend.
    """
    text = "".join(traceback.format_exception(error))
    known = translate(error)
    if known is None:
        return internal_failure(type(error).__name__, str(error), text)
    return AttemptFailure(
        error=type(known).__name__,
        message=known.message,
        hint=known.hint,
        retryable=known.retryable,
        traceback=text,
    )


def internal_failure(kind: str, text: str, trace: str = "") -> AttemptFailure:
    """Return a fault of the program as data: the class name of an exception, its text and trace."""
    return AttemptFailure(
        error=UnloaderError.__name__,
        message=f"internal error in a worker: {kind}: {text}",
        hint=UnloaderError.usual_hint,
        retryable=False,
        traceback=trace,
    )


def error_of(failure: AttemptFailure) -> UnloaderError:
    """Return the error that a failure ends a run with."""
    if failure.traceback:
        logger.debug("in a worker:\n%s", failure.traceback)
    return error_class(failure.error)(failure.message, failure.hint)


def is_a(failure: AttemptFailure, cls: type[UnloaderError]) -> bool:
    """Return whether a failure is of a class or one derived from it."""
    return issubclass(error_class(failure.error), cls)
