"""The errors of this package; each carries one message for the user and nothing else."""


class WriteError(Exception):
    """Output could not be written: the message names the file and what the system said."""


class FormatError(WriteError):
    """The asked-for format is impossible or contradicts itself, before any row was written."""


class ValueNotRepresentable(WriteError):
    """A value does not fit the format without being changed; the message names the column."""
