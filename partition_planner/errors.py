"""The one error of this package."""


class PlanError(Exception):
    """The table cannot be planned as asked, or a stored plan cannot be trusted.

    Takes the message only, so that it survives pickling; the message ends in what to do next.
    """
