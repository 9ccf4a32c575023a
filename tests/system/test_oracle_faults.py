"""Oracle going wrong in mid-unload: what one retry heals, what ends a run and how, and no trace."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from long_tests import OTHER_ROUTES, also
from oracle import runs
from oracle.leg import database
from oracle.runs import Outcome
from oracle_server import Fault, OracleServer
from oracle_server.samples.tables import lob_table
from processes import command

FIRST, MIDDLE, LAST, WHOLE = runs.PARTITIONS
"""The partition that a fault hits in its first batch, in the middle, in its last batch, never."""
PLACES = ((FIRST, 0), (MIDDLE, runs.PARTITION_ROWS // 2), (LAST, None))
"""Partitions, and after which of their rows a fault hits; None: in the last reply."""
UNITS = ("--split", "partition", "--fetch-memory", runs.SMALL_FETCH)
LOB_BYTES = 3_000_000

CASES = [
    ("ora-01555", "ORA-01555", ()),
    ("reset", "Connection reset|DPY-4011", ("--fetch", "native")),
]
"""Kinds of faults, their names in the log, and further options of the run."""

MORE = [
    ("ora-00600", "ORA-00600", ("--format", "parquet")),
    ("reset", "Connection reset|DPY-4011", ("--fetch", "tuples")),
    ("ora-03113", "ORA-03113", ("--fetch", "tuples")),
    ("cut", "DPY-4011", ()),
    ("cut", "DPY-4011", ("--fetch", "native")),
    ("ora-01555", "ORA-01555", ("--fetch", "native")),
    ("ora-00028", "ORA-00028", ()),
    ("ora-01013", "ORA-01013", ()),
]
"""The same, for a run of everything."""

FAULTS = "faults of a source"
"""The kind of the long tests."""


@pytest.fixture(scope="module")
def running() -> Iterator[OracleServer]:
    """A server with PADDED and LOB_TABLE."""
    made = database()
    runs.padded_table(made)
    lob_table(made, (100, LOB_BYTES, 40_000))
    with OracleServer(made) as server:
        yield server


@pytest.fixture
def server(running: OracleServer) -> Iterator[OracleServer]:
    """The server without any fault or session of an earlier test; at the end without clients."""
    with runs.undisturbed(running):
        yield running


@pytest.fixture(scope="module")
def undisturbed(
    running: OracleServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, str]]:
    """The files of runs in which nothing went wrong, by format."""
    found = {}
    for form in ("csv", "parquet"):
        to = tmp_path_factory.mktemp("undisturbed") / form
        done = runs.unload(running, "PADDED", to, *UNITS, "--parallelism", "2", "--format", form)
        assert done.status == 0, done.log
        assert len(done.files) == len(runs.PARTITIONS)
        found[form] = done.files
    return found


def reading(partition: str) -> str:
    """Return a pattern of the statement that reads a partition."""
    return rf'"PAD".*PARTITION \("{partition}"\)'


def order_faults(server: OracleServer, kind: str, **options: object) -> list[Fault]:
    """Order a fault in each of the three places."""
    return [
        server.faults.add(
            Fault(kind=kind, statement=reading(partition), after_rows=after, **options)  # type: ignore[arg-type]
        )
        for partition, after in PLACES
    ]


def assert_resumable(done: Outcome) -> None:
    assert command.final_names(done.destination) == []
    assert {"journal.jsonl", "run.json"} <= set(done.staged)
    assert not [name for name in done.staged if name.startswith("staged/")]
    assert "continue with: unloader resume" in done.error


def assert_nothing_there(done: Outcome) -> None:
    """Check that a run which finished no unit has left no trace."""
    assert not done.destination.exists(), done.staged


@pytest.mark.parametrize(
    ("kind", "name", "options"), [*CASES, *also(FAULTS, *MORE)],
    ids=[case[0] for case in (*CASES, *MORE)],
)  # fmt: skip
def test_one_retry_heals(
    server: OracleServer,
    undisturbed: dict[str, dict[str, str]],
    tmp_path: Path,
    kind: str,
    name: str,
    options: tuple[str, ...],
) -> None:
    """A fault in the first, a middle or the last batch costs one attempt: same SCN, same bytes."""
    faults = order_faults(server, kind)
    done = runs.unload(server, "PADDED", tmp_path / "out", *UNITS, "--parallelism", "2", *options)
    assert done.status == 0, done.log
    assert [fault.count for fault in faults] == [1, 1, 1]
    assert done.attempts == {FIRST: 2, MIDDLE: 2, LAST: 2, WHOLE: 1}
    assert len(re.findall(f"attempt 1 failed: .*(?:{name})", done.log)) == len(faults)
    assert "was lost" not in done.log, "a worker died"
    assert done.files == undisturbed["parquet" if "parquet" in options else "csv"]
    assert done.manifest["verified"]["result"] == "ok"
    assert not (done.destination / "_run").exists()
    assert runs.scns(server) == {done.manifest["snapshot"]["value"]}
    # The parent's, one of each worker, one more for each failed attempt.
    assert len(server.sessions) <= 1 + 2 + len(faults)


@pytest.mark.long(OTHER_ROUTES)
def test_stall_without_a_close_is_replaced(
    server: OracleServer, undisturbed: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """A worker whose answer never comes, or only half of it, is replaced after --stall-timeout."""
    faults = order_faults(server, "stall", deaf=True)
    done = runs.unload(
        server, "PADDED", tmp_path / "out", *UNITS, "--parallelism", "3", "--stall-timeout", "5"
    )
    assert done.status == 0, done.log
    assert [fault.count for fault in faults] == [1, 1, 1]
    assert min(done.attempts[partition] for partition, _ in PLACES) == 2
    assert "for 5 s" in done.log
    assert done.files == undisturbed["csv"]
    assert runs.scns(server) == {done.manifest["snapshot"]["value"]}


@pytest.mark.long(OTHER_ROUTES)
def test_stall_is_broken_off_by_the_call_timeout(
    server: OracleServer, undisturbed: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """--call-timeout ends a wait in the worker itself, also where the network is gone for good."""
    faults = [
        server.faults.add(
            Fault(kind="stall", statement=reading(partition), after_rows=after, deaf=deaf)
        )
        for (partition, after), deaf in zip(PLACES, (True, True, False), strict=True)
    ]
    done = runs.unload(
        server, "PADDED", tmp_path / "out", *UNITS, "--parallelism", "3", "--call-timeout", "2"
    )
    assert done.status == 0, done.log
    assert [fault.count for fault in faults] == [1, 1, 1]
    # The driver has been seen to end the process where a lost connection was touched again.
    assert "was lost" not in done.log
    assert "DPY-4024" in done.log
    assert done.files == undisturbed["csv"]


def test_what_always_fails_leaves_the_others_whole(
    server: OracleServer, undisturbed: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """Units that fail at every attempt end the run with 7; the others are kept, nothing is final."""
    kinds = ("ora-01555", "cut", "ora-00600")
    faults = [
        server.faults.add(
            Fault(kind=kind, statement=reading(partition), after_rows=after, times=None)
        )
        for kind, (partition, after) in zip(kinds, PLACES, strict=True)
    ]
    done = runs.unload(
        server, "PADDED", tmp_path / "out", *UNITS, "--parallelism", "2", "--retries", "2"
    )
    assert done.status == 7, done.log
    assert done.stdout == ""
    assert [fault.count for fault in faults] == [3, 3, 3]
    assert "3 of 4 work units failed" in done.error
    assert re.search("ORA-01555|DPY-4011|ORA-00600", done.error)
    advice = done.error.partition("Next: ")[2]
    assert f"continue with: unloader resume {done.destination}" in advice
    assert "UNDO_RETENTION" in advice or "log" in advice
    assert "was lost" not in done.log
    assert command.final_names(done.destination) == []
    journal, manifest, staged = "journal.jsonl", "_manifest.json", "staged/0004-a1.csv.part"
    assert set(done.staged) == {manifest, journal, "run.json", "status.json", staged}
    (kept,) = (name for name in undisturbed["csv"] if "0004" in name)
    assert runs.sha256(done.destination / "_run" / staged) == undisturbed["csv"][kept]


@pytest.mark.parametrize(
    ("kind", "code", "advice"),
    [
        ("ora-01555", "ORA-01555", "UNDO_RETENTION"),
        *also(FAULTS, ("ora-01013", "ORA-01013", "--call-timeout"), ("cut", "DPY-4011", "log")),
    ],
)
def test_only_unit_that_always_fails(
    server: OracleServer, tmp_path: Path, kind: str, code: str, advice: str
) -> None:
    """A run without a successful unit ends with 4, Oracle's words and the next step."""
    fault = server.faults.add(
        Fault(kind=kind, statement=reading(MIDDLE), after_rows=2000, times=None)
    )
    done = runs.unload(
        server, "PADDED", tmp_path / "out", *UNITS, "--partition", MIDDLE, "--retries", "1"
    )
    assert done.status == 4, done.log
    assert fault.count == 2
    assert code in done.error
    assert advice in done.error.partition("Next: ")[2]
    assert "was lost" not in done.log
    # The parent's, and one for each attempt: no storm of retries.
    assert len(server.sessions) == 3
    assert command.final_names(done.destination) == []
    # Another attempt may do better later, so the run's record is kept.
    assert "run.json" in done.staged


@pytest.mark.parametrize("kind", ["ora-08103", *also(FAULTS, "ora-00942")])
def test_what_no_retry_can_heal_is_not_retried(
    server: OracleServer, tmp_path: Path, kind: str
) -> None:
    """A table that was truncated or taken away ends the run immediately, with status 4."""
    fault = server.faults.add(
        Fault(kind=kind, statement=reading(MIDDLE), after_rows=2000, times=None)
    )
    done = runs.unload(server, "PADDED", tmp_path / "out", *UNITS, "--partition", MIDDLE)
    assert done.status == 4, done.log
    assert fault.count == 1
    assert kind.upper() in done.error
    assert_nothing_there(done)


@pytest.mark.long(OTHER_ROUTES)
def test_undo_that_is_gone_for_all_is_not_waited_for(tmp_path: Path) -> None:
    """When the run's SCN itself cannot be read any more, no further attempt is made."""
    made = database()
    runs.padded_table(made)
    with OracleServer(made) as server:
        slow = server.faults.add(
            Fault(kind="stall", statement=reading(FIRST), after_rows=runs.PARTITION_ROWS // 2)
        )
        to = tmp_path / "out"
        running = command.Forked(
            *runs.arguments(server, "PADDED", to, *UNITS, "--parallelism", "1"),
            env=runs.ENVIRONMENT,
        )
        running.wait_until(slow.happened.is_set, "the first rows")
        made.delete("SCOTT", "PADDED", lambda row: row[0] == 1)
        made.expire_undo(made.scn)
        slow.over.set()
        done = runs.ended(running, to)
        assert done.status == 4, done.log
        assert "ORA-01555" in done.error
        assert done.log.count("attempt 1 failed") == 1
        assert "attempt 2" not in done.log
        assert command.final_names(to) == []
        runs.assert_no_connection_left(server)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(kind="cut", call="login", skip=1), "DPY-4011"),
        *also(FAULTS, (Fault(kind="ora-12514", call="connect", skip=1), "ORA-12514")),
    ],
    ids=["login", "listener"],
)
def test_listener_that_refuses_a_worker_once(
    server: OracleServer,
    undisturbed: dict[str, dict[str, str]],
    tmp_path: Path,
    fault: Fault,
    words: str,
) -> None:
    """A worker that is not let in tries again; the parent's own connection was there before."""
    server.faults.add(fault)
    done = runs.unload(server, "PADDED", tmp_path / "out", *UNITS, "--parallelism", "2")
    assert done.status == 0, done.log
    assert fault.count == 1
    assert re.search(f"attempt 1 failed: .*{words}", done.log)
    assert sum(done.attempts.values()) == len(runs.PARTITIONS) + 1
    assert done.files == undisturbed["csv"]


@pytest.mark.long(OTHER_ROUTES)
def test_parent_loses_its_session(
    server: OracleServer, undisturbed: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """The parent's session may be ended while the workers read: the rows are counted in another."""
    slow = server.faults.add(Fault(kind="stall", statement=reading(FIRST)))
    to = tmp_path / "out"
    running = command.Forked(
        *runs.arguments(server, "PADDED", to, *UNITS, "--parallelism", "2"), env=runs.ENVIRONMENT
    )
    running.wait_until(slow.happened.is_set, "the first rows")
    server.kill(server.sessions[0].sid)
    slow.over.set()
    done = runs.ended(running, to)
    assert done.status == 0, done.log
    assert done.manifest["verified"]["result"] == "ok"
    assert done.files == undisturbed["csv"]
    assert runs.scns(server) == {done.manifest["snapshot"]["value"]}


def test_count_that_fails_publishes_nothing(server: OracleServer, tmp_path: Path) -> None:
    """Rows that cannot be counted at the SCN are not proven whole: status 4, all stays staged."""
    server.faults.add(Fault(kind="ora-01555", statement=r"COUNT\(\*\)", times=None))
    done = runs.unload(server, "PADDED", tmp_path / "out", *UNITS, "--parallelism", "2")
    assert done.status == 4, done.log
    assert "ORA-01555" in done.error
    assert command.final_names(done.destination) == []
    assert sum(name.startswith("staged/") for name in done.staged) == len(runs.PARTITIONS)


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("kind", ["cut", *also(FAULTS, "ora-22924")])
def test_large_values_are_read_again_from_their_start(
    server: OracleServer, tmp_path: Path, kind: str
) -> None:
    """A LOB whose connection ends in its first, a middle and its last piece is whole in the end."""
    options = ("--columns", "ID,C", "--no-header")
    for after in (0, 3, 5):
        server.faults.add(Fault(kind=kind, statement="CHARTOROWID", call="lob", after_rows=after))
    done = runs.unload(server, "LOB_TABLE", tmp_path / "out", *options)
    assert done.status == 0, done.log
    assert [unit["attempts"] for unit in done.manifest["units"]] == [4]
    assert "was lost" not in done.log
    (file,) = done.destination.glob("*.csv")
    for line, size in zip(file.read_text().splitlines(), (100, LOB_BYTES, 40_000), strict=True):
        _, _, value = line.partition(",")
        assert len(value) == size
        assert int(value[(size - 1) // 16 * 16 - 16 :][:16]) == (size - 1) // 16 * 16 - 16


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (signal.SIGINT, "stall"),
        *also(
            FAULTS,
            *((each, "trickle") for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
            *((each, "stall") for each in (signal.SIGTERM, signal.SIGHUP)),
        ),
    ],
)
def test_signal_ends_a_fetch(
    server: OracleServer, tmp_path: Path, number: signal.Signals, kind: str
) -> None:
    """Signals end the run with 130 immediately, also without a network, and all sessions."""
    # Packet by packet a partition takes a minute.
    seconds = 0.5 if kind == "trickle" else None
    fault = server.faults.add(
        Fault(
            kind=kind, statement='"PAD"', after_rows=1, times=None, seconds=seconds,
            deaf=kind == "stall",
        )
    )  # fmt: skip
    to = tmp_path / "out"
    running = command.Forked(
        *runs.arguments(server, "PADDED", to, *UNITS, "--parallelism", "2"), env=runs.ENVIRONMENT
    )
    running.wait_until(lambda: fault.count == 2, "two slow statements")
    workers = running.workers()
    assert len(workers) == 2
    running.signal(number)
    done = runs.ended(running, to)
    assert done.status == 130, done.log
    assert done.stdout == ""
    assert not any(psutil.pid_exists(worker.pid) for worker in workers)
    runs.assert_no_connection_left(server)
    assert_resumable(done)


def test_killed_worker_and_killed_parent(
    server: OracleServer, undisturbed: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """After SIGKILL of all processes a new run replaces the files; of a worker, one unit is redone."""
    to = tmp_path / "out"
    for parent in (True, False):
        server.faults.clear()
        slow = server.faults.add(Fault(kind="stall", statement=reading(MIDDLE), after_rows=1000))
        running = command.Forked(
            *runs.arguments(server, "PADDED", to, *UNITS, "--parallelism", "1"),
            env=runs.ENVIRONMENT,
        )
        running.wait_until(slow.happened.is_set, "the second unit")
        if parent:
            running.signal(signal.SIGKILL)
            running.finish()
            runs.assert_no_connection_left(server)
            assert command.final_names(to) == []
            server.sessions.clear()
        else:
            running.workers()[0].kill()
            done = runs.ended(running, to)
    assert done.status == 0, done.log
    assert "SIGKILL" in done.log
    assert done.attempts == {FIRST: 1, MIDDLE: 2, LAST: 1, WHOLE: 1}
    assert done.files == undisturbed["csv"]
    assert runs.scns(server) == {done.manifest["snapshot"]["value"]}
    assert not (to / "_run").exists()
