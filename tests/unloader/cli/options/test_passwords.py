"""Passwords: from the environment, a file or a prompt, and from nowhere that others can see."""

from __future__ import annotations

import os
import pty
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SECRET = "s3cr3t-w0rd"


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", f"postgresql://etl:{SECRET}@db01/x", "--table", "t", "--to", "out"),
        ("run", f"postgresql://db01/x?password={SECRET}", "--table", "t", "--to", "out"),
        ("describe", "postgresql://etl@db01/x", "--password", SECRET),
        ("describe", "postgresql://etl@db01/x", f"--password={SECRET}"),
        ("verify", "out", f"postgresql://etl:{SECRET}@db01/x"),
        ("formats", f"postgresql://etl:{SECRET}@db01/x"),
    ],
)
def test_a_password_on_the_command_line_is_refused_and_not_repeated(
    unloader: Run, arguments: tuple[str, ...]
) -> None:
    """In a URL or as an option, a password ends the command with status 2 and stays unseen."""
    result = unloader(*arguments)
    assert result.returncode == 2
    assert SECRET not in result.stderr + result.stdout


def test_a_password_in_a_job_file_is_refused(unloader: Run, tmp_path: Path) -> None:
    """A job file is kept and shared; it says where the password is, never what it is."""
    (tmp_path / "job.toml").write_text(f'password = "{SECRET}"\n')
    result = unloader("run", "job.toml", "--to", "out")
    assert result.returncode == 2
    assert "password-file" in result.stderr
    assert SECRET not in result.stderr


def test_a_password_file_open_to_others_is_warned_of(
    unloader: Run, tmp_path: Path, database: str
) -> None:
    """The command works, and says on stderr how to close the file."""
    path = tmp_path / "pw"
    path.write_text(SECRET)
    path.chmod(0o644)
    result = unloader("describe", database, "--password-file", "pw")
    assert result.returncode == 0
    assert "chmod 600 pw" in result.stderr
    path.chmod(0o600)
    assert unloader("describe", database, "--password-file", "pw").stderr == ""


def test_a_prompt_asks_on_the_terminal_and_shows_nothing(
    tmp_path: Path, environment: dict[str, str], program: tuple[str, ...], database: str
) -> None:
    """--password-prompt reads the password from the terminal without echo, off stdout."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*program, "describe", database, "--password-prompt"],
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=follower,
        env=environment,
        cwd=tmp_path,
        start_new_session=True,
    ) as process:
        os.close(follower)
        shown = b""
        while b"Password for" not in shown:
            shown += os.read(leader, 1024)
        # What is typed before the echo is off is shown, and then thrown away.
        while termios.tcgetattr(leader)[3] & termios.ECHO:
            time.sleep(0.01)
        os.write(leader, f"{SECRET}\n".encode())
        output, _ = process.communicate(timeout=60)
        while True:
            try:
                shown += os.read(leader, 1024)
            except OSError:
                break
    os.close(leader)
    assert process.returncode == 0
    assert b"orders" in output
    assert SECRET.encode() not in shown + output
