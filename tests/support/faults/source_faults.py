"""Faults of the source: sessions that end, connections that break, a file that is written to."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import duckdb
from oracle.session_killer import PostgresSessions

from faults.catalog import KILLED, Fault
from faults.injections import InSource, Kill, Surroundings, until_staged, until_units

LOST = frozenset({4})


def _until_it_ends(process: subprocess.Popen[bytes], act: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        act()
        time.sleep(0.01)


def _end_a_worker(process: subprocess.Popen[bytes], around: Surroundings) -> None:
    sessions = PostgresSessions(around.target.url, around.chance)
    until_staged(process, around.destination)
    for _ in range(50):
        if process.poll() is not None or sessions.end_worker():
            return
        time.sleep(0.01)


def _end_the_parent(process: subprocess.Popen[bytes], around: Surroundings) -> None:
    sessions = PostgresSessions(around.target.url, around.chance)
    until_staged(process, around.destination)
    sessions.end_parent()


def _cut_a_fetch(around: Surroundings) -> None:
    from oracle_server.faults import Fault as ServerFault

    after = around.chance.randrange(4000)
    around.target.server.faults.add(
        ServerFault(
            kind=around.chance.choice(("cut", "reset")), statement="PADDED", after_rows=after
        )
    )


def _drop_everybody(process: subprocess.Popen[bytes], around: Surroundings) -> None:
    server = around.target.server
    until_units(process, around)

    def drop() -> None:
        for sid in list(server.connected):
            with suppress(KeyError):
                server.drop(sid)

    _until_it_ends(process, drop)


def _forget_faults(around: Surroundings) -> None:
    around.target.server.faults.clear()


def _kill_all(process: subprocess.Popen[bytes], around: Surroundings) -> None:
    until_units(process, around)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _opened(path: Path) -> duckdb.DuckDBPyConnection:
    """Open a file for writing; a worker that has lost its parent has it open for a moment."""
    end = time.monotonic() + 180
    while True:
        try:
            return duckdb.connect(str(path))
        except duckdb.IOException:
            assert time.monotonic() < end, f"a worker does not let go of {path}"
            time.sleep(0.05)


def _write_to_the_file(around: Surroundings) -> None:
    path = Path(around.target.url.removeprefix("duckdb://"))
    with _opened(path) as connection:
        connection.execute(f"CREATE TABLE other_{random.getrandbits(60)} AS SELECT 1 AS i")


def _quiet(process: subprocess.Popen[bytes], around: Surroundings) -> None:
    pass


def source_faults() -> Iterator[Fault]:
    """Yield them."""
    yield Fault(
        name="source/PostgreSQL ends a worker's session",
        target="postgresql",
        injection=InSource(act=_end_a_worker),
        statuses=frozenset({0}),
        seeded=True,
    )
    yield Fault(
        name="source/PostgreSQL ends the parent's session, and the snapshot with it",
        target="postgresql",
        injection=InSource(act=_end_the_parent),
        statuses=LOST | {0},
        refused=4,
        resume_options=("--new-snapshot",),
        keeps_units=False,
        seeded=True,
        tries="all",
    )
    yield Fault(
        name="source/PostgreSQL loses its snapshot with a killed run",
        target="postgresql",
        injection=Kill(who="group"),
        statuses=frozenset({KILLED, 0}),
        refused=4,
        resume_options=("--new-snapshot",),
        keeps_units=False,
        seeded=True,
    )
    yield Fault(
        name="source/Oracle's connection is cut in a fetch",
        target="oracle",
        injection=InSource(act=_quiet, before=_cut_a_fetch, undo=_forget_faults),
        statuses=frozenset({0}),
        seeded=True,
    )
    yield Fault(
        name="source/Oracle drops every connection from then on",
        target="oracle",
        injection=InSource(act=_drop_everybody, undo=_forget_faults),
        statuses=LOST | {0, 7},
        seeded=True,
        tries="all",
    )
    yield Fault(
        name="source/a run over Oracle is killed",
        target="oracle",
        injection=Kill(who="parent"),
        statuses=frozenset({KILLED, 0}),
        seeded=True,
    )
    yield Fault(
        name="source/the DuckDB file is written to before the resume",
        injection=InSource(act=_kill_all, undo=_write_to_the_file),
        statuses=frozenset({KILLED, 0}),
        refused=4,
        resume_options=("--new-snapshot",),
        keeps_units=False,
        seeded=True,
        tries="all",
    )
