"""The faults that whole runs are tried under: how each gets in, and how the run may end."""

from __future__ import annotations

import errno
import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from faults.injections import Calls, Clock, Injection, Kill, Limits, LostTerminal, Memory, Signals

KILLED = -int(signal.SIGKILL)
ABORTED = frozenset({-int(signal.SIGSEGV), -int(signal.SIGABRT)})
NO_THREAD_LOCAL = 127
"""The dynamic loader ends a process with it that has no memory for a new thread's data."""
OUTPUT = frozenset({6})
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One of them."""

    name: str
    injection: Injection
    statuses: frozenset[int]
    """Exit statuses that the disturbed run may have; negative is a signal."""
    target: str = "duckdb"
    """Where the table is: duckdb, postgresql, oracle, or many for thousands of units."""
    options: tuple[str, ...] = ()
    """Further ones of the run."""
    overwrites: bool = False
    """A finished run of other rows is in the destination, and is to be replaced."""
    refused: int = 0
    """Exit status of a resume that cannot go on, and changes nothing; 0 is that it can."""
    resume_options: tuple[str, ...] = ()
    """Of a resume that can."""
    told: bool = True
    """The reason is on standard error."""
    comparable: bool = True
    """In the end everything equals an undisturbed run."""
    keeps_units: bool = True
    """Finished units are not run again."""
    seeded: bool = False
    """Each seed is another moment."""
    tries: str = "once"
    """In a plain run of the tests (plain), in one of everything (all), or alone only (once)."""


def _call(name: str, tries: str, calls: Calls, **more: object) -> Fault:
    return Fault(
        name=f"calls/{name}", injection=calls, tries=tries,
        **{"statuses": OUTPUT, **more},  # type: ignore[arg-type]
    )  # fmt: skip


def _failing_writes() -> Iterator[Fault]:
    numbers = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)
    for place, number in enumerate(numbers):
        word = errno.errorcode[number]
        tries = "once"
        data = Calls(
            call="write", error=number, files="/_run/staged/", who="worker", after=600_000 + place
        )
        yield _call(f"{word} of a worker's write", "all" if number == errno.EDQUOT else tries, data)
        for what, files, after in (
            ("lock", "/_run/lock", 0),
            ("run record", "/run.json", 0),
            ("journal", "journal.jsonl", 700),
            ("manifest", "_manifest.json", 0),
        ):
            wanted = "plain" if (word, what) == ("ENOSPC", "journal") else tries
            calls = Calls(call="write", error=number, files=files, who="parent", after=after)
            yield _call(f"{word} of the {what}", wanted, calls)


def _failing_names() -> Iterator[Fault]:
    full = errno.ENOSPC
    yield _call(
        "ENOSPC of a worker's new file", "once",
        Calls(call="create", error=full, files="/_run/staged/", who="worker", after=2),
    )  # fmt: skip
    for what, call, files, after in (
        ("of _run", "mkdir", "/_run", 0),
        ("of staged", "mkdir", "/staged", 0),
        ("of the twin", "mkdir", ".unloader-", 0),
        ("of the run record's name", "rename", "/run.json", 0),
        ("of the manifest's name", "rename", "_manifest.json", 0),
        ("of a data file's name", "rename", ".0003.csv", 0),
        ("of the first data file's name", "rename", ".0001.csv", 0),
    ):
        number = errno.EROFS if call == "rename" else full
        calls = Calls(call=call, error=number, files=files, who="parent", after=after)
        # Where there can be no twin, files get their names one by one.
        may = frozenset({0, 6}) if "twin" in what else OUTPUT
        yield _call(f"{call} {what}", "all" if "first" in what else "once", calls, statuses=may)
    exchange = Calls(call="rename", error=errno.EIO, files="/out", who="parent", times=1)
    yield _call(
        "the exchange fails once", "all", exchange, statuses=frozenset({0, 6}), overwrites=True
    )


def _failing_syncs() -> Iterator[Fault]:
    for what, files, who in (
        ("data", "/_run/staged/", "worker"),
        ("run record", "/run.json", "parent"),
        ("journal", "journal.jsonl", "parent"),
        ("manifest", "_manifest.json", "parent"),
        ("names", "/out", "parent"),
        ("twin", ".unloader-", "parent"),
    ):
        for times in (0, 1):
            calls = Calls(call="fsync", error=errno.EIO, files=files, who=who, times=times)
            # A journal that was not synced is reported at its next line. It is not needed once all
            # files have their names. Files that cannot be exchanged are moved one by one.
            lax = what in ("journal", "twin") or (what, times) == ("data", 1)
            may = frozenset({0, 6}) if lax else OUTPUT
            often = "once, then well" if times else "always"
            tries = {("data", 1): "plain", ("journal", 0): "all"}
            yield _call(
                f"sync of the {what} fails {often}", tries.get((what, times), "once"), calls,
                statuses=may,
            )  # fmt: skip


_KILLS_TRIED = {("parent", True): "plain", ("group", False): "plain", ("worker", False): "all"}


def _kills() -> Iterator[Fault]:
    for who in ("worker", "parent", "group"):
        # Any command after the end finds a finished run.
        may = frozenset({0}) if who == "worker" else frozenset({KILLED, 0})
        for overwrites in (False, True):
            yield Fault(
                name=f"kills/{who}{' of a replacing run' if overwrites else ''}",
                injection=Kill(who=who),
                statuses=may,
                overwrites=overwrites,
                seeded=True,
                tries=_KILLS_TRIED.get((who, overwrites), "once"),
            )
    yield Fault(
        name="kills/parquet",
        injection=Kill(who="parent"),
        statuses=frozenset({KILLED, 0}),
        options=("--format", "parquet"),
        seeded=True,
    )
    yield Fault(
        name="kills/thousands of units",
        target="many",
        injection=Kill(who="group"),
        statuses=frozenset({KILLED, 0}),
    )
    yield Fault(
        name="kills/one file for the table",
        injection=Kill(who="group"),
        statuses=frozenset({KILLED, 0}),
        options=("--file-per", "table", "--compression", "gzip:1"),
        seeded=True,
        # The joined file has the bytes, and units have none.
        keeps_units=False,
        comparable=False,
    )


def _signals() -> Iterator[Fault]:
    stopped, kill = frozenset({130, 0}), signal.SIGKILL
    for name, numbers, to_group, tries in (
        ("SIGTERM, then SIGKILL, as init systems do", (signal.SIGTERM, kill), False, "all"),
        ("SIGTERM, then SIGKILL to all", (signal.SIGTERM, kill), True, "once"),
        ("SIGHUP", (signal.SIGHUP,), False, "once"),
        ("SIGHUP to all", (signal.SIGHUP,), True, "once"),
        ("Ctrl-C, which all processes get", (signal.SIGINT,), True, "once"),
        ("Ctrl-C three times", (signal.SIGINT,) * 3, True, "once"),
    ):
        several = len(numbers) > 1
        yield Fault(
            name=f"signals/{name}",
            injection=Signals(numbers=numbers, pause=0.02, to_group=to_group),
            statuses=stopped | {KILLED, -int(numbers[-1])} if several else stopped,
            told=not several,
            seeded=True,
            tries=tries,
        )
    for hangup in (True, False):
        yield Fault(
            name=f"terminal/{'hung up' if hangup else 'gone, under nohup'}",
            injection=LostTerminal(hangup=hangup),
            statuses=stopped | {9} if hangup else frozenset({0, 9}),
            told=False,
            tries="once" if hangup else "all",
        )


def _limits() -> Iterator[Fault]:
    # At any effect of a limit the run ends without a kill, and reports the reason.
    may = frozenset({0, 3, 4, 6, 7})
    for name, number, most, tries in (
        ("address space 900 MiB", resource.RLIMIT_AS, 900 * MIB, "once"),
        ("address space 300 MiB", resource.RLIMIT_AS, 300 * MIB, "all"),
        ("24 descriptors", resource.RLIMIT_NOFILE, 24, "once"),
        ("12 descriptors", resource.RLIMIT_NOFILE, 12, "once"),
        ("files of 200 kB", resource.RLIMIT_FSIZE, 200_000, "once"),
        ("files of 1 kB", resource.RLIMIT_FSIZE, 1_000, "once"),
    ):
        # Libraries of others end the process where they are refused memory.
        ended = ABORTED | {NO_THREAD_LOCAL} if number == resource.RLIMIT_AS else frozenset()
        yield Fault(
            name=f"limits/{name}", injection=Limits(limits=((number, most),)), statuses=may | ended,
            tries=tries,
        )  # fmt: skip
    for most in (4, 12):
        yield Fault(
            name=f"limits/{most} processes and threads",
            injection=Limits(limits=((resource.RLIMIT_NPROC, most),), as_nobody=True),
            statuses=may,
        )
    for size in (60, 120):
        yield Fault(
            name=f"limits/control group of {size} MiB",
            injection=Memory(size=size * MIB),
            # The kernel kills whom it likes.
            statuses=may | {KILLED},
        )


def _clocks() -> Iterator[Fault]:
    for name, jumps in (
        ("an hour on and back", (0, 3600)),
        ("years both ways", (0, -20 * 365 * 86400, 40 * 365 * 86400)),
    ):
        yield Fault(
            name=f"clock/{name}",
            injection=Clock(jumps=jumps),
            statuses=frozenset({0}),
            tries="all" if len(jumps) == 3 else "once",
        )


FAULTS: tuple[Fault, ...] = (
    *_failing_writes(),
    *_failing_names(),
    *_failing_syncs(),
    *_kills(),
    *_signals(),
    *_limits(),
    *_clocks(),
)
