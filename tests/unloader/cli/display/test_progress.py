"""Progress on stderr: a bar on a terminal, a log elsewhere, and what a signal does to a run."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from processes.program import Program
from schemas.json_schema import checked

Run = Callable[..., "subprocess.CompletedProcess[str]"]

ENDLESS = "SELECT i, md5(CAST(i AS VARCHAR)) AS m FROM range(100000000000) t(i)"
"""Rows for longer than any test waits."""


@pytest.fixture
def start(
    tmp_path: Path, environment: dict[str, str], program: tuple[str, ...], database: str
) -> Callable[..., subprocess.Popen[str]]:
    """Start a run that does not end, with a line of progress ten times a second."""

    def run(*arguments: str) -> subprocess.Popen[str]:
        return Program(
            [*program, "run", database, "--query", ENDLESS, "--to", "out", *arguments],
            cwd=tmp_path,
            env={**environment, "UNLOADER_LOG_INTERVAL": "0.1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


def test_sigint_stops_in_good_order(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Ctrl-C: an immediate line, no file under its final name, and exit status 130."""
    with start() as process:
        assert process.stderr is not None
        lines = []
        while not any("rows/s" in line for line in lines):
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        process.send_signal(signal.SIGINT)
        output, rest = process.communicate(timeout=180)
    assert process.returncode == 130
    assert output == ""
    assert " stopping: " in rest
    assert " stopped: 0/1 units, 0 rows" in rest
    assert rest.splitlines()[-1].startswith("unloader: error: ")
    assert any("unloading query: 1 unit on 1 worker" in line for line in lines)
    assert not list(tmp_path.glob("out/*.csv"))


def test_sigterm_stops_and_json_lines_have_the_same_facts(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    """SIGTERM ends with 130, too; each line of the log is an object with event, time and run."""
    with start("--log-format", "json", "--json") as process:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        while not is_progress(json.loads(lines[-1])):
            lines.append(process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        output, rest = process.communicate(timeout=180)
    assert process.returncode == 130
    assert json.loads(output)["error"]["kind"] == "Interrupted"
    events = checked("".join((*lines, rest)))
    assert {"ts", "event", "run_id"} <= set.intersection(*(set(each) for each in events))
    assert "run_started" in [each["event"] for each in events]
    told = [each["event"] for each in events if each["event"] != "progress"]
    assert told[-3:] == ["stopping", "run_stopped", "error"]
    assert (events[-1]["kind"], events[-1]["exit_code"]) == ("Interrupted", 130)
    progress = next(each for each in events if is_progress(each))
    assert progress["units"] == 1
    assert {"rows", "rows_per_second", "mb_per_second", "percent"} <= set(progress)


def is_progress(event: dict[str, object]) -> bool:
    """Return whether a line of the log has the progress of the units."""
    return event["event"] == "progress" and event["phase"] == "unloading"


def on_terminal(arguments: list[str], environment: dict[str, str], directory: Path) -> str:
    """Return what a command writes to stderr where that is a terminal of 30 lines."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    with Program(
        arguments, stdout=subprocess.DEVNULL, stderr=follower, env=environment, cwd=directory
    ) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                shown += os.read(leader, 65536)
            except OSError:
                break
    os.close(leader)
    assert process.returncode == 0, shown.decode()
    return shown.decode()


def test_a_terminal_gets_a_bar(
    tmp_path: Path, environment: dict[str, str], program: tuple[str, ...], database: str
) -> None:
    """On a terminal the run is drawn with its share done and a line for a busy worker."""
    query = ENDLESS.replace("100000000000", "500000")
    arguments = [*program, "run", database, "--query", query, "--to", "out"]
    shown = on_terminal(arguments, {**environment, "TERM": "xterm"}, tmp_path)
    assert "━" in shown
    assert " 100 % " in shown
    assert "worker 0" in shown
    assert "done: " in shown.splitlines()[-1]


def test_a_dumb_terminal_gets_a_log(
    tmp_path: Path, environment: dict[str, str], program: tuple[str, ...], database: str
) -> None:
    """Where the terminal cannot move its cursor there are plain lines."""
    arguments = [*program, "run", database, "--table", "orders", "--to", "out"]
    shown = on_terminal(arguments, {**environment, "TERM": "dumb"}, tmp_path)
    assert "\x1b" not in shown
    assert "Z unloading main.orders" in shown


def test_a_pipe_gets_no_bar_even_by_name(unloader: Run, database: str) -> None:
    """--progress bar without a terminal is the log, without any control character."""
    result = unloader("run", database, "--table", "orders", "--to", "out", "--progress", "bar")
    assert result.returncode == 0
    assert "\x1b" not in result.stderr
    assert "Z done: " in result.stderr


def test_no_progress_leaves_the_result(unloader: Run, database: str) -> None:
    """--progress none keeps stderr free of progress; only notices remain."""
    result = unloader("run", database, "--table", "orders", "--to", "out", "--progress", "none")
    assert result.returncode == 0
    assert "unloading" not in result.stderr
    assert "done" not in result.stderr
    assert "3,000" in result.stdout
