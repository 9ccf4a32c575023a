"""The errors of this package. All arguments are positional texts, so that each error pickles."""


class WriteError(Exception):
    """Output could not be written: the message names the file and the system's error."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint
        """What to do about it; empty if nothing is known."""

    def __str__(self) -> str:
        """Return the message, then `Next:` and the hint where there is one."""
        return f"{self.message} Next: {self.hint}" if self.hint else self.message


class FormatError(WriteError):
    """The asked-for format is impossible or contradicts itself, before any row was written."""


class SchemaMismatch(WriteError):
    """A batch has other columns than its writer: a fault of the code that read them."""


class ValueNotRepresentable(WriteError):
    """A value does not fit the format without being changed; the message names the column."""


class StoreFailed(WriteError):
    """An object store failed in a way that another attempt may get past."""


class Superseded(StoreFailed):
    """An object or upload in the store has changed, or differs from the sent data."""
