"""The tasks of `engine_tasks` in a process that takes longer to start than a stall may last."""

import time

from processes.engine_tasks import work

__all__ = ["work"]

time.sleep(2.0)
