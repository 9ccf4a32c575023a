"""What this package raises. Each takes the message as its only argument, so that it pickles."""


class NumaError(Exception):
    """Base of the errors of this package."""


class TopologyError(NumaError):
    """A file that describes the machine cannot be understood; names the file and its text."""


class PlacementError(NumaError):
    """The seats asked for cannot be had: a bad node list, option value or parallelism."""


class PoolError(NumaError):
    """The pool was used against its rules, or a process could not be started."""


class StartError(PoolError):
    """The system refused a process: it is short of processes, files, memory or temporary space."""
