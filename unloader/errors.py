"""The one tree of errors that a user meets, and how foreign errors enter it.

    UnloaderError            1   a fault of this program
    ├── UsageError           2   an option is wrong, or options contradict each other
    ├── ConfigError          3   configuration, missing driver, impossible seats
    ├── SourceError          4   the database refused, failed or went away
    ├── PlanFailed           5   the table cannot be cut as asked
    ├── OutputFailed         6   the destination or the format refused
    ├── PartialUnload        7   some work units failed, or some of several tables are not complete
    ├── VerifyMismatch       8   output and source differ
    ├── AnswerLost           9   done, but the answer could not be written
    ├── FollowUpFailed      10   done, but a step after the run failed
    └── Interrupted        130   stopped by a signal

Another attempt may get past the errors that are `retryable`; `unloader.engine.schedule` decides
about that. No exception crosses a process: a worker sends an `AttemptFailure`, which `failure_of`
and `error_of` translate.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import resource
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from unloader.model.work import AttemptFailure

logger = logging.getLogger(__name__)


class UnloaderError(Exception):
    """An error with one line for the user: what failed, then what to do next."""

    exit_code = 1
    retryable = False
    usual_hint = "run again with --debug (unloader --debug ...) and report it"
    """What to do next where the raiser knows nothing better."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.usual_hint
        self.script = ""
        """SQL that would mend it, for a user who may run it; empty without a remedy."""

    def __str__(self) -> str:
        text = self.message.rstrip(". ")
        return f"{text}{'' if text.endswith(('!', '?')) else '.'} Next: {self.hint}"


class UsageError(UnloaderError):
    exit_code = 2
    usual_hint = "see the options with --help"


class ConfigError(UnloaderError):
    exit_code = 3
    usual_hint = "correct the configuration"


class SourceError(UnloaderError):
    exit_code = 4
    usual_hint = "check the database's log"


class ValueRefused(SourceError):
    """An expression of the source, such as a cast in a view, fails on a value of the data."""

    usual_hint = (
        "correct the value, or the view that converts it; or leave out the column with --exclude, "
        "or one of several tables with --exclude-table"
    )


class TransientSourceError(SourceError):
    """The connection was lost, a deadlock was ended, or the server starts."""

    retryable = True


class SnapshotGone(SourceError):
    """The source does not have the state that the run reads any more."""

    usual_hint = "unload the table again: its state at the run's snapshot cannot be read any more"


class SnapshotTooOld(SnapshotGone, TransientSourceError):
    """Old versions of rows were missing; another attempt may find them, and none after it."""


class ConnectFailed(TransientSourceError):
    """No session could be opened."""


class SessionsRefused(ConnectFailed):
    """The source takes no more sessions now; open sessions continue."""

    usual_hint = "lower --parallelism, or raise the database's limit of sessions"


class PlanFailed(UnloaderError):
    exit_code = 5
    usual_hint = "see the partitions with: unloader describe SOURCE --table T"


class OutputFailed(UnloaderError):
    exit_code = 6
    usual_hint = "check the destination, or choose another --to"


class StorageUnavailable(OutputFailed):
    """A store is out of reach or busy."""

    retryable = True
    usual_hint = "check the store and the network"


class PartialUnload(UnloaderError):
    exit_code = 7
    usual_hint = "fix the cause and run again"


class WorkerLost(PartialUnload):
    """A worker ended, or had to be ended, in the middle of its work unit."""

    retryable = True
    usual_hint = "check the system log for the cause (out of memory, a kill)"


class VerifyMismatch(UnloaderError):
    exit_code = 8
    usual_hint = "unload the table again"


class AnswerLost(UnloaderError):
    exit_code = 9
    usual_hint = "send the result to a file or a program that accepts it"


class FollowUpFailed(UnloaderError):
    exit_code = 10
    usual_hint = "do the failed step by hand; do not run the unload again"


class Interrupted(UnloaderError):
    exit_code = 130
    usual_hint = "run again"


LEAF_ERRORS: dict[str, type[UnloaderError]] = {
    "partition_planner.model:PlanError": PlanFailed,
    "numa.model:TopologyError": ConfigError,
    "numa.model:PlacementError": ConfigError,
    "numa.model:PoolError": UnloaderError,
    "numa.model:StartError": ConfigError,
    "writers.errors:FormatError": ConfigError,
    "writers.errors:StoreFailed": StorageUnavailable,
    "writers.errors:Superseded": OutputFailed,
    "writers.errors:SchemaMismatch": UnloaderError,
    "writers.errors:ValueNotRepresentable": OutputFailed,
    "writers.errors:WriteError": OutputFailed,
}
"""Every error of the three leaves and its error here; named as text so that no leaf is imported."""


def translate(error: BaseException) -> UnloaderError | None:
    """Return the user's error for a leaf's error, the most specific entry winning, else None."""
    if isinstance(error, UnloaderError):
        return error
    for cls in type(error).__mro__:
        target = LEAF_ERRORS.get(f"{cls.__module__}:{cls.__qualname__}")
        if target is not None:
            leaf: Any = error
            return target(leaf.message, leaf.hint)
    return _refused_by_the_system(error)


# By the number of the system's error: the exhausted resource, and the remedy.
_SCARCE = {
    errno.ENOMEM: (
        "memory",
        "lower --overlap-buffer, --fetch-memory or --parallelism, or raise the limit on memory",
    ),
    errno.EMFILE: ("open files", "lower --parallelism, or raise the limit on open files (ulimit)"),
    errno.ENFILE: ("open files", "lower --parallelism, or close files of other programs"),
    errno.EAGAIN: (
        "threads or processes",
        "lower --parallelism, or raise the limit on processes of this user (ulimit)",
    ),
}

_UNLOADED = re.compile("failed to map segment|[Cc]annot allocate memory")
"""Messages of the loader of libraries; the former also where a file may not be executed."""


def _refused_by_the_system(error: BaseException) -> ConfigError | None:
    """Return the user's error where the machine or its limits are at fault, else None."""
    number = error.errno if isinstance(error, OSError) else None
    # A library that was refused memory may fail without a reason, or while it is loaded. Python
    # then raises a SystemError in several wordings. Without a limit on memory it is a fault.
    unexplained = isinstance(error, SystemError) or (
        isinstance(error, ImportError) and _UNLOADED.search(str(error)) is not None
    )
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    if isinstance(error, MemoryError) or (unexplained and limited):
        number = errno.ENOMEM
    elif isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        number = errno.EAGAIN  # Python's error has no number.
    if number in _SCARCE:
        what, hint = _SCARCE[number]
        return ConfigError(f"the system refuses more {what}: {str(error) or 'none is left'}", hint)
    if number == errno.ENOENT:
        try:
            os.getcwd()
        except FileNotFoundError:
            return ConfigError(
                "the working directory has been removed",
                "change to a directory that exists, or give every path in full",
            )
    return None


def error_class(name: str) -> type[UnloaderError]:
    """Return the class of this module with that name; UnloaderError for an unknown one."""
    found = globals().get(name, UnloaderError)
    return found if isinstance(found, type) and issubclass(found, UnloaderError) else UnloaderError


@contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of the libraries as errors of this program."""
    try:
        yield
    except UnloaderError:
        raise
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error


def failure_of(error: BaseException) -> AttemptFailure:
    """Return an exception as data; one that belongs to no class here is a fault of the program."""
    # An error that was never raised has no traceback.
    text = "" if error.__traceback__ is None else "".join(traceback.format_exception(error))
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
    if failure.traceback:
        logger.debug("in a worker:\n%s", failure.traceback)
    return error_class(failure.error)(failure.message, failure.hint)


def is_a(failure: AttemptFailure, cls: type[UnloaderError]) -> bool:
    return issubclass(error_class(failure.error), cls)
