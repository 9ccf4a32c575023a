"""Runs in the workers of a Dask cluster: the same files as on one machine, also after kills."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
from certificates import of_authority
from clusters.cluster import Cluster, Node, cluster, relay
from long_tests import OTHER_ROUTES, also
from oracle.leg import OracleLeg
from oracle_server.model import Column, Type
from processes import command, program
from processes.breaking import comparable, held_behind, staged_units

ROWS = 120_000
LONG = pytest.mark.long("runs in clusters")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of some units in a DuckDB file; return its URL."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT i, 'row number ' || i AS v, i * 1.5 AS d "
            f"FROM range({ROWS}) r(i)"
        )
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two workers, which pause in a run while there are files.

    The first one does so after two units for `stands`, the second one after one for `waits`.
    """
    with cluster(tmp_path_factory.mktemp("two")) as found:
        found.add(env=held_behind(1, found.directory / "stands"))
        found.add(env=held_behind(0, found.directory / "waits"))
        yield found


def run(source: str, place: Path, *options: str) -> tuple[str, ...]:
    """Return the run of the table to a place, in some units."""
    return (
        *("run", source, "--table", "t", "--to", str(place), "--unit-bytes", "300kB"),
        *("--parallelism", "2", "--progress", "none", *options),
    )


def files(dest: Path) -> dict[str, bytes]:
    """Return the files of a finished run."""
    found: dict[str, bytes] = comparable(dest)["files"]
    return found


def units_of(dest: Path) -> int:
    try:
        (table,) = json.loads((dest / "_run" / "run.json").read_text())["tables"]
        return len(table["plan"]["units"])
    except FileNotFoundError:
        return 1_000_000


FEW_UNITS = ("--unit-bytes", "2MB")
"""Of a run with a short --stall-timeout, in which all are done while one worker is still."""


def one_stands(two: Cluster, source: str, dest: Path, *options: str) -> command.Running:
    gates = [two.directory / name for name in ("stands", "waits")]
    for each in gates:
        each.touch()
    call = run(source, dest, *FEW_UNITS, *options, "--cluster", two.address)
    running = command.Forked(*call)
    # The other one continues once the first one is sure to be there.
    running.wait_until(lambda: len(staged_units(dest)) >= 3, "units of both workers")
    gates[1].unlink()
    standing(running, dest)
    return running


def standing(running: command.Running, dest: Path) -> None:
    running.wait_until(
        lambda: len(staged_units(dest)) == units_of(dest) - 1, "the end of all units but one"
    )


def hiding(place: Path) -> tuple[str, ...]:
    """Return what a command is called with on a machine on which a directory is another one."""
    return ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{place}" && exec "$0" "$@"')


def other_version(tmp_path: Path) -> dict[str, str]:
    """Return variables with which a program has another version of unloader."""
    place = tmp_path / "other"
    place.mkdir()
    (place / "sitecustomize.py").write_text("import unloader\nunloader.__version__ = '99.1'\n")
    return {"PYTHONPATH": str(place)}


@pytest.mark.parametrize("form", ["csv", *also(OTHER_ROUTES, "parquet")])
def test_the_same_bytes_as_on_one_machine(
    two: Cluster, source: str, tmp_path: Path, form: str
) -> None:
    """Files and manifest equal a local run; workers have their seats and host there."""
    options = ("--format", form, "--verify", "full")
    command.run(*run(source, tmp_path / "here", *options))
    there = tmp_path / "there"
    command.run(*run(source, there, *options, "--cluster", two.address))
    found = comparable(there)
    assert found["options"].pop("cluster") == two.address
    assert found == comparable(tmp_path / "here")
    workers = command.manifest_of(there)["workers"]
    assert [each["worker"] for each in workers] == [0, 1]
    assert all(each["host"] and each["units"] and each["ran_on"] for each in workers)


@pytest.mark.long("runs in clusters")
def test_the_same_from_a_server_that_is_told_no_password(
    two: Cluster, postgres: Any, tmp_path: Path
) -> None:
    """Workers enter the snapshot that the parent has exported."""
    url = postgres.database("cluster")
    postgres.run(
        f"CREATE TABLE t AS SELECT g AS i, 'row ' || g AS v FROM generate_series(1, {ROWS}) g;"
        "VACUUM ANALYZE t",
        url=url,
    )
    command.run(*run(url, tmp_path / "here"))
    command.run(*run(url, tmp_path / "there", "--cluster", two.address))
    assert files(tmp_path / "there") == files(tmp_path / "here")
    assert command.manifest_of(tmp_path / "there")["snapshot"]["kind"] == "exported-snapshot"


@LONG
def test_the_same_from_oracle_with_a_password_of_each_machine(
    oracle: OracleLeg, tmp_path: Path
) -> None:
    """Each worker finds the password in its own file; no one sends it one."""
    user = oracle.user()
    columns = (
        Column(name="I", type=Type(name="NUMBER", precision=9, scale=0), nullable=False),
        Column(name="V", type=Type(name="VARCHAR2", length=40)),
    )
    oracle.create("T", columns, account=user)
    oracle.load("T", columns, ((n, f"row {n}") for n in range(20_000)), account=user)
    oracle.settle()
    command.run(*run(user.url, tmp_path / "here"), env=user.environment)
    there = tmp_path / "there"
    with cluster(tmp_path / "cluster") as found, relay(found.address) as between:
        found.add(2, env=user.environment)
        command.run(*run(user.url, there, "--cluster", between.address), env=user.environment)
    assert files(there) == files(tmp_path / "here")
    # The traffic can be read, and has no password.
    assert b"UnitTask" in between.seen
    assert user.name.encode() in between.seen
    assert user.password.encode() not in between.seen


@pytest.mark.long("runs in clusters")
def test_a_killed_dask_worker_costs_its_unit_one_attempt(source: str, tmp_path: Path) -> None:
    """Another worker reads the unit again; its own processes end with it."""
    stands = tmp_path / "stands"
    stands.touch()
    dest = tmp_path / "out"
    with cluster(tmp_path / "cluster") as found:
        (held,) = found.add(env=held_behind(1, stands))
        found.add()
        running = command.Forked(*run(source, dest, "--cluster", found.address))
        standing(running, dest)
        readers = held.unit_processes()
        assert readers
        held.kill()
        assert psutil.wait_procs(readers, timeout=command.PATIENCE_SECONDS)[1] == []
        status, _, log = running.finish()
    assert status == 0, log
    assert "is lost: its Dask worker has ended" in log
    attempts = [each["attempts"] for each in command.manifest_of(dest)["units"]]
    assert sorted(attempts)[-2:] == [1, 2]
    command.run(*run(source, tmp_path / "here"))
    assert files(dest) == files(tmp_path / "here")


@LONG
def test_one_that_was_cut_off_and_comes_back_publishes_nothing(
    two: Cluster, source: str, tmp_path: Path
) -> None:
    """It continues with its unit and writes its file, which counts for nothing, and then ends."""
    stands, held, dest = two.directory / "stands", two.nodes[0], tmp_path / "out"
    running = one_stands(two, source, dest, "--stall-timeout", "5", "--retry-delay", "20")
    readers = held.unit_processes()
    held.signal_all(signal.SIGSTOP)
    try:
        assert "it has not answered for" in running.log_until("is lost")
    finally:
        stands.unlink()
        held.signal_all(signal.SIGCONT)
    # It ends without a word of the parent.
    assert psutil.wait_procs(readers, timeout=command.PATIENCE_SECONDS)[1] == []
    status, _, log = running.finish()
    assert status == 0, log
    attempts = [each["attempts"] for each in command.manifest_of(dest)["units"]]
    assert max(attempts) == 2
    command.run(*run(source, tmp_path / "here", *FEW_UNITS))
    assert files(dest) == files(tmp_path / "here")


@LONG
def test_those_that_had_nothing_to_do_take_the_place_of_others(source: str, tmp_path: Path) -> None:
    """A run that begins with some of the machines continues with the others when all of them die."""
    stands, to = tmp_path / "stands", tmp_path / "out"
    stands.touch()
    with cluster(tmp_path / "cluster") as found:
        nodes = found.add(3, env=held_behind(1, stands))
        call = run(source, to, "--parallelism", "adaptive", "--cluster", found.address)
        running = command.Forked(*call)
        running.wait_until(lambda: len(staged_units(to)) >= 2, "units of workers that stand still")

        def at_work() -> list[Node]:
            return [node for node in nodes if node.unit_processes()]

        # All have shown that they can read, and the third one ends its process after that.
        running.wait_until(lambda: len(at_work()) == 2, "the end of a process without a unit")
        for node in at_work():
            node.kill()
        stands.unlink()
        status, _, err = running.finish()
    assert status == 0, err
    assert command.manifest_of(to)["totals"]["rows"] == ROWS


@pytest.mark.long("runs in clusters")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -9, marks=LONG)]
)
def test_no_unit_outlives_its_run(
    two: Cluster, source: str, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """A run that is interrupted ends its units immediately, one that is killed in bounded time."""
    stands, dest = two.directory / "stands", tmp_path / "out"
    running = one_stands(two, source, dest, "--stall-timeout", "10")
    readers = [each for node in two.nodes for each in node.unit_processes()]
    assert len(readers) == 2
    running.signal(number)
    assert running.finish()[0] == status
    assert psutil.wait_procs(readers, timeout=command.PATIENCE_SECONDS)[1] == []
    stands.unlink()
    assert command.final_names(dest) == []
    # It goes back to the cluster, or to where it is reported.
    command.run("resume", str(dest), *(() if status == 130 else ("--cluster", "none")))
    command.run(*run(source, tmp_path / "here", *FEW_UNITS))
    assert files(dest) == files(tmp_path / "here")


def test_an_interrupt_while_the_cluster_is_opened(
    two: Cluster, source: str, tmp_path: Path
) -> None:
    """It ends the run, though a Dask worker does not answer."""
    held = two.nodes[0]
    held.signal_all(signal.SIGSTOP)
    try:
        running = command.Forked(*run(source, tmp_path / "out", "--cluster", two.address))
        process = psutil.Process(running.process.pid)
        running.wait_until(
            lambda: any(
                each.status == psutil.CONN_ESTABLISHED for each in process.net_connections()
            ),
            "a connection to the scheduler",
        )
        running.signal(signal.SIGINT)
        status, _, log = running.finish()
    finally:
        held.signal_all(signal.SIGCONT)
    assert status == 130, log
    assert "stopped by a signal while the cluster was opened" in log


@LONG
def test_a_server_that_is_not_a_scheduler(source: str, tmp_path: Path) -> None:
    """Something listens there and answers in another protocol; the run ends in bounded time."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.server_port}"
        error = command.error_of(*run(source, tmp_path / "out", "--cluster", address), status=4)
        server.shutdown()
    assert f"the scheduler at {address} cannot be used" in error


@LONG
@pytest.mark.parametrize("lost", ["scheduler", "connection"])
def test_a_run_that_loses_the_scheduler(source: str, tmp_path: Path, lost: str) -> None:
    """It keeps its finished units, and is resumed without the cluster."""
    stands, dest = tmp_path / "stands", tmp_path / "out"
    stands.touch()
    with cluster(tmp_path / "cluster") as found, relay(found.address) as between:
        found.add(env=held_behind(1, stands))
        call = run(source, dest, "--stall-timeout", "5", "--cluster", between.address)
        running = command.Forked(*call)
        running.wait_until(lambda: bool(staged_units(dest)), "the first unit")
        if lost == "scheduler":
            found.scheduler.kill()
        else:
            between.close()
        status, _, log = running.finish()
    assert status == 7, log
    assert "has no workers any more: the scheduler does not answer" in log
    assert command.final_names(dest) == []
    kept = len(staged_units(dest))
    resumed = command.ended("resume", str(dest), "--cluster", "none", "--progress", "log")
    assert f"resumed: {kept} unit" in resumed.stderr
    command.run(*run(source, tmp_path / "here"))
    assert files(dest) == files(tmp_path / "here")


@pytest.mark.long(OTHER_ROUTES)
def test_several_tables_and_a_cluster_of_our_own(source: str, tmp_path: Path) -> None:
    """local:N starts its own processes, and ends them with the run."""
    path = source.removeprefix("duckdb://")
    with duckdb.connect(path) as connection:
        connection.execute("CREATE OR REPLACE TABLE u AS SELECT * FROM t WHERE i < 1000")
    both = ("run", source, "--table", "t", "--table", "u", "--parallelism", "2")
    for name, more in (("here", ()), ("there", ("--cluster", "local:2"))):
        command.run(*both, "--to", str(tmp_path / name / "{table}"), *more)
    for table in ("t", "u"):
        assert files(tmp_path / "there" / table) == files(tmp_path / "here" / table)
    left = map(program.command_line, program.below())
    assert not any("unloader.engine.cluster" in each for each in left)


@LONG
def test_a_machine_that_differs_is_named_before_the_first_row(source: str, tmp_path: Path) -> None:
    """One with another version, and one that does not see the destination."""
    dest = tmp_path / "dest" / "out"
    dest.parent.mkdir()
    with cluster(tmp_path / "cluster") as found:
        error = command.error_of(*run(source, dest, "--cluster", found.address), status=3)
        assert "has no Dask worker" in error
        (other,) = found.add(env=other_version(tmp_path))
        error = command.error_of(*run(source, dest, "--cluster", found.address), status=3)
        assert f"the Dask worker on {socket.gethostname()} (tcp://" in error
        assert "has unloader 99.1, but this run has unloader" in error
        other.end()
        if os.geteuid() == 0:
            found.add(inside=hiding(dest.parent))
            error = command.error_of(*run(source, dest, "--cluster", found.address), status=6)
            assert (
                f"{dest} on {socket.gethostname()} is not the same place as on the machine of the run"
                in error
            )
    assert command.final_names(dest) == []


@LONG
@pytest.mark.skipif(os.geteuid() != 0, reason="another machine's mounts need root")
def test_one_that_comes_later_and_does_not_see_the_destination(source: str, tmp_path: Path) -> None:
    """It is named and does no unit, as one with another version. The next one that comes does."""
    stands, dest = tmp_path / "stands", tmp_path / "dest" / "out"
    stands.touch()
    dest.parent.mkdir()
    with cluster(tmp_path / "cluster") as found:
        (held,) = found.add(env=held_behind(1, stands))
        running = command.Forked(*run(source, dest, "--cluster", found.address))
        running.wait_until(lambda: bool(staged_units(dest)), "the first unit")
        found.add(env=other_version(tmp_path))
        found.add(inside=hiding(dest.parent))
        held.kill()
        text = "".join(running.log_until("the run continues without it") for _ in range(2))
        assert "has unloader 99.1, but this run has unloader" in text
        assert (
            f"{dest} on {socket.gethostname()} is not the same place as on the machine of the run"
            in text
        )
        found.add()
        status, _, log = running.finish()
    assert status == 0, log
    command.run(*run(source, tmp_path / "here"))
    assert files(dest) == files(tmp_path / "here")


@LONG
def test_both_sides_show_certificates(source: str, tmp_path: Path) -> None:
    """A run works with the certificates of the cluster, and ends immediately with others."""
    ours, others = of_authority(tmp_path / "ours"), of_authority(tmp_path / "others", "elsewhere")
    dest = tmp_path / "out"
    with cluster(tmp_path / "cluster", tls=ours) as found:
        found.add()
        call = run(source, dest, "--cluster", found.address)
        assert "needs certificates" in command.error_of(*call, status=3)
        for wrong in (others["ca"].parent, _mixed(tmp_path, ours, others)):
            error = command.error_of(*call, "--cluster-security", str(wrong), status=3)
            assert "do not trust each other" in error
        command.run(*call, "--cluster-security", str(ours["ca"].parent))
    command.run(*run(source, tmp_path / "here"))
    assert files(dest) == files(tmp_path / "here")


def _mixed(directory: Path, ours: dict[str, Path], others: dict[str, Path]) -> Path:
    """Return a file that names the cluster's authority, and a certificate of another one."""
    found = directory / "mixed.toml"
    lines = ("ca", ours["ca"]), ("cert", others["cert"]), ("key", others["key"])
    found.write_text("".join(f'{name} = "{path}"\n' for name, path in lines))
    return found


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--to", "-"), "--cluster writes to a place that all its machines share"),
        (("--to", "out", "--max-cpu", "50%"), "--max-cpu measures the CPUs of this host"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused(
    source: str, options: tuple[str, ...], problem: str
) -> None:
    """Before anybody is asked."""
    call = ("run", source, "--table", "t", "--cluster", "tcp://nobody.invalid:1", *options)
    assert problem in command.error_of(*call, status=2)
