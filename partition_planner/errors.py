"""The one error of this package."""


class PlanError(Exception):
    """The table cannot be planned as asked, or a stored plan cannot be trusted.

    All arguments are positional texts, so that it survives pickling.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint
        """What to do about it; empty if nothing is known."""

    def __str__(self) -> str:
        return f"{self.message} Next: {self.hint}" if self.hint else self.message
