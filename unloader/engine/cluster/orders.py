"""What the parent and the agents of its run say to one another: plain data, and no secret."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from msgspec import Struct

from numa.model import ProcessLimits, Seat
from unloader.engine.executor import ExecutorEvent
from unloader.model import AttemptFailure, Preload, Proof, SeatOptions
from unloader.placement.evidence import Evidence, WorkerEvidence

HOLD_SECONDS = 2.0
"""How long an agent waits for something to tell before it says that there is nothing."""

MESSAGE_SECONDS = 0.3
"""How long it keeps a report of progress, so that several of them go together."""


class Opening(Struct, frozen=True, kw_only=True):
    """What an agent is opened with: which seats are its own, and what is done on them."""

    agent: str
    """Its name: no other one of any run has it."""
    entry: str
    """See `numa.pool.Pool`."""
    limits: ProcessLimits
    options: SeatOptions
    warm_up: Preload
    looks: bool
    seats_of_machine: int
    """Seats that are dealt on this machine, to all agents there."""
    places: tuple[tuple[int, int], ...]
    """Places of the run that are here, ascending, each with the number of its seat among those."""
    begin: int
    """Processes that start at once."""
    lease_seconds: float
    """Without a word of the parent for so long, all processes are ended."""


class Send(NamedTuple):
    """A task for a place."""

    place: int
    task: object


class Prove(NamedTuple):
    """Have a process show that units can be read here; tasks that come behind this wait for it."""

    task: Proof
    is_awaited: bool
    """Its outcome is an event. Of another one only a failure counts, and only where it is asked for
    again."""


class Tell(NamedTuple):
    """Something for the task at a place."""

    place: int
    payload: object


class Stop(NamedTuple):
    """End the tasks at these places, by force."""

    reasons: dict[int, AttemptFailure]


class Begin(NamedTuple):
    """Use the places below the one number, and keep processes below the other one."""

    places: int
    of: int


class Start(NamedTuple):
    """Keep processes at the places below a number, beside those that there are."""

    places: int


class Finish(NamedTuple):
    """Look at the places a last time; the answer is the evidence."""


class Close(NamedTuple):
    """End everything."""


Order: TypeAlias = Send | Prove | Tell | Stop | Begin | Start | Finish | Close


class Proven(NamedTuple):
    """The outcome of a proof."""

    failure: AttemptFailure | None
    """Why units cannot be read there."""


class Told(NamedTuple):
    """An event of an agent, in its order."""

    number: int
    event: ExecutorEvent | Proven
    is_free: bool
    """Its place can take a task now."""
    worker: WorkerEvidence | None
    """What is known of the worker at its place, where that may have changed."""


class Opened(NamedTuple):
    """The answer of an agent that was opened."""

    seats: tuple[Seat, ...]
    """Of its places, in their order, each with the number of its place."""
    notices: tuple[str, ...]
    """What the machine cannot give."""


class Refused(NamedTuple):
    """The answer of a machine that cannot seat the workers."""

    failure: AttemptFailure


class Finished(NamedTuple):
    """The answer of an agent that has looked a last time."""

    evidence: Evidence
