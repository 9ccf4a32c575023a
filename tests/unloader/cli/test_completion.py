"""Completion in a real shell, and the small ways of asking for help."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from unloader import __version__
from unloader.cli.group import COMMANDS

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def completed(
    tmp_path: Path, environment: dict[str, str], program: tuple[str, ...]
) -> Callable[[str], list[str]]:
    """Return what bash offers at the end of a line that is being typed."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    command = tmp_path / "unloader"
    command.write_text(f'#!/bin/sh\nexec {" ".join(program)} "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{environment['PATH']}"

    def complete(line: str) -> list[str]:
        words = line.split(" ")
        script = (
            'eval "$(unloader completion bash --output -)"\n'
            f"COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}\n"
            # The script has registered the function that bash itself would call.
            "function=$(complete -p unloader | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n"
            '"$function" unloader\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
        )
        done = subprocess.run(
            [bash, "--norc", "-c", script],
            cwd=tmp_path,
            env={**environment, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    return complete


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("unloader ", list(COMMANDS)),
        ("unloader ve", ["verify"]),
        ("unloader run duckdb:///x.db --paral", ["--parallelism", "--parallel-query"]),
        ("unloader run --format ", ["csv", "parquet"]),
        ("unloader run duckdb:///x.db --dialect t", ["tsv"]),
        ("unloader help co", ["codecs", "completion"]),
        ("unloader help run paral", ["parallelism", "parallel-query"]),
        ("unloader help run encr", ["encryption", "encrypt-to"]),
    ],
)
def test_bash_completes_commands_options_and_values(
    completed: Callable[[str], list[str]], line: str, offered: list[str]
) -> None:
    """bash offers commands, the options of each, and the values of options with a list."""
    assert sorted(completed(line)) == sorted(offered)


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", ".local/share/bash-completion/completions/unloader"),
        ("zsh", ".local/share/zsh/site-functions/_unloader"),
        ("fish", ".config/fish/completions/unloader.fish"),
    ],
)
def test_each_shell_gets_a_script(unloader: Run, tmp_path: Path, shell: str, place: str) -> None:
    """The script is written to the file in which the shell looks for it, or to standard output."""
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}
    done = unloader("completion", shell, variables=home)
    assert str(tmp_path / place) in done.stdout, done.stderr
    script = (tmp_path / place).read_text()
    assert f"_UNLOADER_COMPLETE={shell}_complete" in script
    assert unloader("completion", shell, "--output", "-").stdout.strip() == script.strip()


def test_a_script_that_cannot_be_written_is_an_error(unloader: Run, tmp_path: Path) -> None:
    """The error names the file and --output."""
    (tmp_path / "file").touch()
    done = unloader("completion", "bash", "--output", str(tmp_path / "file" / "script"))
    assert done.returncode == 6
    assert "cannot be written" in done.stderr
    assert "--output" in done.stderr


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_has_a_short_option(unloader: Run, option: str) -> None:
    """-V is --version."""
    assert unloader(option).stdout == f"unloader, version {__version__}\n"


def test_help_is_a_command(unloader: Run) -> None:
    """`help` and --help show the same page, of the program and of a command."""
    assert unloader("help").stdout == unloader("--help").stdout != ""
    assert unloader("help", "verify").stdout == unloader("verify", "--help").stdout != ""
    wrong = unloader("help", "nope")
    assert wrong.returncode == 2
    assert "the first word is not a command" in wrong.stderr


def test_a_long_plan_shows_its_first_units(unloader: Run, database: str) -> None:
    """The summary comes first; of many units a few follow, and all of them with --units."""
    arguments = ("plan", database, "--table", "orders", "--split", "range", "--unit-bytes", "1kB")
    short, full = unloader(*arguments).stdout, unloader(*arguments, "--units").stdout
    units = json.loads(unloader(*arguments, "--json", "--units").stdout)["plan"]["units"]
    assert len(units) > 20, "the table is cut into too few units"
    assert short.count(f"... {len(units) - 5} more: --units shows all") == 2
    assert short.startswith("table ")
    last = units[-1]["id"]
    assert last not in short.split("digest")[1]
    assert full.count(f"\n{last} ") == 2
    assert "more:" not in full
