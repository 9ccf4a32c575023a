"""The state of a run for displays; see `unloader.status.tally`."""

from unloader.status.tally import Figures, Running, Tally

__all__ = ["Figures", "Running", "Tally"]
