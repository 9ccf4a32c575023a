"""Faults on order: what goes wrong, with which statement, after how many rows, how often."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field

from oracle_server.model import OracleError
from oracle_server.wire.channel import Pause
from oracle_server.wire.errors import DEAD_SESSION, FatalError, known_error

_ORA = re.compile(r"ora-(\d+)(\+cut)?", re.IGNORECASE)
_KINDS = frozenset({"cut", "reset", "stall", "trickle"})
_CALLS = frozenset({"rows", "lob", "login", "connect"})


@dataclass(slots=True, kw_only=True, eq=False)
class Fault:
    """One order; `OracleServer.faults.add` takes it."""

    kind: str
    """`ora-01555` or any other code (`ora-03113+cut`: the connection is closed after it; codes of
    dead sessions do so anyway), `cut` (half a packet, then the end of the connection), `reset` (the
    same with a TCP reset), `stall` (half of a reply, then nothing; after 0 rows not even that, as if
    the statement took long), `trickle` (packet by packet)."""
    statement: str = ""
    """Regular expression to be found in the statement; case does not matter."""
    after_rows: int | None = 0
    """It happens to the reply that has the row after these; None: to the one with the last row.

    An error replaces this whole reply, as with real servers; a cut is within that row. With
    `call="lob"` it counts LOB operations."""
    times: int | None = 1
    """How often it happens; None is always."""
    skip: int = 0
    """Executions of matching statements that it lets pass before."""
    call: str = "rows"
    """Where: `rows` (execute and fetch), `lob`, `login`, `connect` (a listener's refusal, cut or
    stall)."""
    text: str = ""
    """Of an error, in place of Oracle's own; may have several lines."""
    seconds: float | None = None
    """How long a stall lasts, None for ever; the pause before each packet of a trickle (0.05)."""
    over: threading.Event = field(default_factory=threading.Event)
    """Set by a test, it ends a stall; or the event of something that then happens."""
    deaf: bool = False
    """A stall does not notice breaks, as if the network were gone."""
    count: int = field(default=0, init=False)
    """How often it has happened."""
    happened: threading.Event = field(default_factory=threading.Event, init=False)
    """Set when it happens the first time."""

    def __post_init__(self) -> None:
        """Refuse an order that no one would carry out."""
        if self.kind not in _KINDS and not _ORA.fullmatch(self.kind):
            raise ValueError(f"no fault {self.kind!r}")
        if self.call not in _CALLS:
            raise ValueError(f"no call {self.call!r}")
        re.compile(self.statement)

    @property
    def error(self) -> OracleError | None:
        found = _ORA.fullmatch(self.kind)
        if found is None:
            return None
        error = known_error(int(found[1]), self.text)
        return FatalError(error.code, error.text) if self.closes else error

    @property
    def closes(self) -> bool:
        found = _ORA.fullmatch(self.kind)
        if found:
            return bool(found[2]) or int(found[1]) in DEAD_SESSION
        return self.kind in ("cut", "reset")

    @property
    def pace(self) -> float:
        """Seconds before each packet."""
        if self.kind != "trickle":
            return 0
        return 0.05 if self.seconds is None else self.seconds

    @property
    def pause(self) -> Pause:
        """What a stall does to a reply."""
        return Pause(self.seconds, self.deaf, self.over)

    def is_due(self, before: int, after: int, done: bool) -> bool:
        """Report whether a reply with the rows `before + 1` to `after` is the one.

        A first reply without any row is one for a fault after no row.
        """
        if self.after_rows is None:
            return done
        return before <= self.after_rows < max(after, 1)

    def torn_at(self, before: int) -> int | None:
        """Return how many rows a reply may have, so that a cut is within its last one."""
        if self.kind not in ("cut", "reset") or self.after_rows is None:
            return None
        return self.after_rows - before + 1 if self.after_rows >= before else None


class Faults:
    """All orders of one server."""

    def __init__(self) -> None:
        """Start without any."""
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> Fault:
        """Take an order, and return it so that a test can ask what became of it."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Forget every order."""
        with self._lock:
            self._faults.clear()

    def armed(self, call: str, statement: str = "") -> tuple[Fault, ...]:
        """Return the faults that may happen to one execution, which counts for their `skip`."""
        found = []
        with self._lock:
            for fault in self._faults:
                used_up = fault.times is not None and fault.count >= fault.times
                if fault.call != call or used_up:
                    continue
                if not re.search(fault.statement, statement, re.IGNORECASE):
                    continue
                if fault.skip:
                    fault.skip -= 1
                else:
                    found.append(fault)
        return tuple(found)

    def claim(self, fault: Fault) -> bool:
        """Let a fault happen, unless others had it as often as it was ordered."""
        with self._lock:
            if fault.times is not None and fault.count >= fault.times:
                return False
            fault.count += 1
        fault.happened.set()
        return True
