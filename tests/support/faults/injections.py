"""How a fault gets into a run: by a library, by signals, by limits, by a terminal or by its source."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from processes import breaking
from processes.program import below, reads_units

from faults.outcomes import finished_units, publication_has_begun
from faults.targets import Target

PROCESSES = Path(breaking.__file__).parent


@dataclass(frozen=True, kw_only=True)
class Libraries:
    """The compiled ones."""

    calls: Path
    clock: Path

    @classmethod
    def build(cls, directory: Path) -> Libraries:
        """Compile them into a directory."""
        return cls(
            calls=breaking.build(PROCESSES / "faulty_calls.c", directory),
            clock=breaking.build(PROCESSES / "jumping_clock.c", directory),
        )


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What an injection may know of the run that it disturbs."""

    target: Target
    destination: Path
    libraries: Libraries
    log: Path
    """Gets a line for each system call that was made to fail."""
    chance: random.Random
    seconds: float
    """How long an undisturbed run takes."""


class Injection:
    """A fault that does nothing; subclasses override methods."""

    options: tuple[str, ...] = ()
    """Further ones of the run."""

    def environment(self, around: Surroundings) -> dict[str, str]:
        """Return variables of the command."""
        return {}

    def impossible(self) -> str:
        """Return why there can be no such fault on this system; empty if there can."""
        return ""

    def prefix(self) -> tuple[str, ...]:
        """Return a program, with its arguments, that starts the command."""
        return ()

    def start(self, around: Surroundings) -> Mapping[str, Any]:
        """Return further arguments of `subprocess.Popen`."""
        return {}

    def disturb(self, process: subprocess.Popen[bytes], around: Surroundings) -> None:
        """Disturb a run that has just been started; return once all is done."""

    def over(self, around: Surroundings) -> None:
        """Take the fault away, once the run has ended."""


@dataclass(frozen=True, kw_only=True)
class Calls(Injection):
    """System calls on some files fail; see `faulty_calls.c`."""

    call: str
    error: int
    files: str
    who: str = ""
    after: int = 0
    times: int = 0
    """0 is all that follow."""
    options: tuple[str, ...] = ()

    def environment(self, around: Surroundings) -> dict[str, str]:
        """Load the library."""
        return {
            "LD_PRELOAD": str(around.libraries.calls),
            "FAULT_PATH": self.files,
            "FAULT_CALL": self.call,
            "FAULT_DO": str(self.error),
            "FAULT_AFTER": str(self.after),
            "FAULT_TIMES": str(self.times or ""),
            "FAULT_WHO": self.who,
            "FAULT_LOG": str(around.log),
        }


@dataclass(frozen=True, kw_only=True)
class Clock(Injection):
    """The wall clock jumps by that many seconds, three times a second."""

    jumps: tuple[int, ...]

    def environment(self, around: Surroundings) -> dict[str, str]:
        """Load the library."""
        jumps = ",".join(map(str, self.jumps))
        return {
            "LD_PRELOAD": str(around.libraries.clock), "CLOCK_JUMPS": jumps, "CLOCK_MS": "300",
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Kill(Injection):
    """SIGKILL at a random moment: in the start, between any two units, or in the publication."""

    who: str
    """worker, parent or group."""

    def disturb(self, process: subprocess.Popen[bytes], around: Surroundings) -> None:
        """Wait, and kill."""
        chance = around.chance
        phase = chance.choice(("start", "units", "units", "publication"))
        if phase == "start":
            wait(process, chance.uniform(0, around.seconds * 0.7))
        elif phase == "units":
            until_units(process, around)
        else:
            until(process, lambda: publication_has_begun(around.destination))
            wait(process, chance.uniform(0, 0.01))
        with suppress(ProcessLookupError):
            if self.who == "group":
                os.killpg(process.pid, signal.SIGKILL)
            elif self.who == "parent":
                process.kill()
            elif found := workers(process.pid):
                os.kill(chance.choice(found), signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Signals(Injection):
    """Signals to the command or its group between any two units, with pauses between them."""

    numbers: tuple[signal.Signals, ...]
    pause: float = 0.0
    """Seconds between two; init systems wait longer, and that is the better case."""
    to_group: bool = False

    def disturb(self, process: subprocess.Popen[bytes], around: Surroundings) -> None:
        """Send them, from the first staged file on."""
        until_staged(process, around.destination)
        until_units(process, around)
        for number in self.numbers:
            with suppress(ProcessLookupError):
                (os.killpg if self.to_group else os.kill)(process.pid, number)
            wait(process, self.pause)


@dataclass(frozen=True, kw_only=True)
class Limits(Injection):
    """Limits of the system for the command and its workers."""

    limits: tuple[tuple[int, int], ...]
    as_nobody: bool = False
    """Run by a user who is not root, whom some limits do not bind; he may read and write all."""

    def impossible(self) -> str:
        """Return whether a program that changes the user is installed."""
        if self.as_nobody and (shutil.which("setpriv") is None or os.geteuid()):
            return "another user needs root, and setpriv of util-linux"
        return ""

    def prefix(self) -> tuple[str, ...]:
        """Change the user."""
        rights = "+dac_override,+dac_read_search"
        nobody = ("--reuid=65534", f"--inh-caps={rights}", f"--ambient-caps={rights}")
        return ("setpriv", *nobody) if self.as_nobody else ()

    def start(self, around: Surroundings) -> Mapping[str, Any]:
        """Set them in the child."""
        return {"preexec_fn": self._set}

    def _set(self) -> None:
        for number, most in self.limits:
            resource.setrlimit(number, (most, most))


@dataclass(frozen=True, kw_only=True)
class Memory(Injection):
    """A control group with a limit of memory; of version 1, if this system allows it."""

    size: int

    _group: ClassVar[Path] = Path(f"/sys/fs/cgroup/memory/unloader-faults-{os.getpid()}")

    def impossible(self) -> str:
        """Return whether control groups can be made here."""
        return "" if os.access(self._group.parent, os.W_OK) else "there are no groups to be made"

    def start(self, around: Surroundings) -> Mapping[str, Any]:
        """Make the group; the child goes into it."""
        self._group.mkdir(exist_ok=True)
        (self._group / "memory.limit_in_bytes").write_text(str(self.size))
        return {"preexec_fn": self._enter}

    def over(self, around: Surroundings) -> None:
        """Remove the group."""
        for _ in range(100):
            with suppress(OSError):
                self._group.rmdir()
                return
            time.sleep(0.05)

    def _enter(self) -> None:
        (self._group / "cgroup.procs").write_text(str(os.getpid()))


@dataclass(frozen=True, kw_only=True)
class LostTerminal(Injection):
    """The terminal goes away while the run draws its bar on it."""

    hangup: bool
    """The kernel reports it; without, the run is deaf to that, as under nohup."""
    options: tuple[str, ...] = ("--progress", "bar")
    _ends: dict[str, int] = field(default_factory=dict)

    def start(self, around: Surroundings) -> Mapping[str, Any]:
        """Open a terminal; standard output and error are on it."""
        self._ends["ours"], its = os.openpty()
        self._ends["its"] = its
        return {"stdin": its, "stdout": its, "stderr": its, "preexec_fn": lambda: self._enter(its)}

    def disturb(self, process: subprocess.Popen[bytes], around: Surroundings) -> None:
        """Read a while, as terminals do, then close it."""
        os.close(self._ends.pop("its"))
        until_staged(process, around.destination, lambda: self._read())
        os.close(self._ends.pop("ours"))

    def _read(self) -> None:
        import select

        if select.select([self._ends["ours"]], [], [], 0)[0]:
            os.read(self._ends["ours"], 1 << 16)

    def _enter(self, terminal: int) -> None:
        import fcntl
        import termios

        if self.hangup:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        else:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)


@dataclass(frozen=True, kw_only=True)
class InSource(Injection):
    """Something that is done to the source while a run reads it, and taken back."""

    act: Callable[[subprocess.Popen[bytes], Surroundings], None]
    options: tuple[str, ...] = ()
    undo: Callable[[Surroundings], None] | None = None
    before: Callable[[Surroundings], None] | None = None

    def start(self, around: Surroundings) -> Mapping[str, Any]:
        """Get ready."""
        if self.before is not None:
            self.before(around)
        return {}

    def disturb(self, process: subprocess.Popen[bytes], around: Surroundings) -> None:
        """Do it."""
        self.act(process, around)

    def over(self, around: Surroundings) -> None:
        """Take it back."""
        if self.undo is not None:
            self.undo(around)


def wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for that time, or until the process ends."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def until(process: subprocess.Popen[bytes], seen: Callable[[], bool], pause: float = 0.002) -> None:
    """Wait until something holds, or the process ends."""
    end = time.monotonic() + 180
    while process.poll() is None and time.monotonic() < end and not seen():
        time.sleep(pause)


def until_staged(
    process: subprocess.Popen[bytes],
    destination: Path,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Wait until a worker has opened a file, or the process ends."""

    def seen() -> bool:
        meanwhile()
        return any((destination / "_run" / "staged").glob("*"))

    until(process, seen)


def until_units(process: subprocess.Popen[bytes], around: Surroundings) -> None:
    """Wait until a random number of units are done, and a moment more."""
    most = 4 if around.target.name == "oracle" else 6
    number = around.chance.randrange(most)
    until(process, lambda: len(finished_units(around.destination)) >= number)
    wait(process, around.chance.uniform(0, 0.03))


def workers(parent: int) -> list[int]:
    """Return the worker processes of a command."""
    return [each.pid for each in below(parent) if reads_units(each)]
