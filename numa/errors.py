"""What this package raises. All arguments are positional texts, so that each error pickles."""


class NumaError(Exception):
    """Base of the errors of this package: what failed, and what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint
        """What to do about it; empty if nothing is known."""

    def __str__(self) -> str:
        return f"{self.message} Next: {self.hint}" if self.hint else self.message


class TopologyError(NumaError):
    """A file that describes the machine cannot be understood; names the file and its text."""


class PlacementError(NumaError):
    """The requested seats are unavailable: a bad node list, option value or parallelism."""


class PoolError(NumaError):
    """The pool was used against its rules, or a process could not be started."""


class StartError(PoolError):
    """The system refused a process: it is short of processes, files, memory or temporary space."""
