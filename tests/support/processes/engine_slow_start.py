"""The tasks of `engine_tasks` in a process that takes seconds to start."""

import time

from processes.engine_tasks import work

__all__ = ["work"]

time.sleep(2.0)
