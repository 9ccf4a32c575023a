"""What the parent calls in a Dask worker; all of it is done by `agent`.

The functions travel by name. This module loads nothing by itself, as it is loaded in each process
between the two as well.
"""

from __future__ import annotations

import pickle


async def hello(source_kind: str) -> bytes:
    """Return what the parent must know of this machine before it sends anything: plain data."""
    from unloader.engine.cluster import agent

    return pickle.dumps(agent.facts(source_kind))


async def open_agent(data: bytes) -> bytes:
    """Open an agent; return its `Opened`, or why not as `Refused`."""
    from unloader.engine.cluster import agent

    return await agent.open_agent(data)


async def order(name: str, first: int, data: bytes) -> bytes | None:
    """Have orders carried out, in their order; return the answers. None if there is no such agent.

    Args:
        name: Of the agent.
        first: Number of the first order. What the agent had already, it does not do again.
        data: All of them.
    """
    from unloader.engine.cluster import agent

    return await agent.order(name, first, data)


async def fetch(name: str, seen: int) -> bytes | None:
    """Return the events that the parent has not seen, when there are any; at most a while later.

    Args:
        name: Of the agent.
        seen: Number of the last event that the parent has.
    """
    from unloader.engine.cluster import agent

    return await agent.fetch(name, seen)
