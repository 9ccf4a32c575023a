"""Many calls of the command in a fraction of the time: one warm program, a fork for each call.

Each call has a separate directory, variables and standard streams, as a program that the shell
starts; only the interpreter and the modules of the command line are there already. Run as a
program, it reads calls as JSON from standard input and writes their results.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One command line with its surroundings."""

    arguments: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """Texts of files in the directory of the call, by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a call left behind."""

    status: int
    texts: dict[str, str]
    """Its output: standard output, standard error and each file that it made or changed."""


def answers(calls: Sequence[Call], directory: Path, environment: dict[str, str]) -> list[Answer]:
    """Make the calls one after the other and return their answers."""
    done = subprocess.run(
        [sys.executable, __file__, str(directory)],
        input=json.dumps([asdict(call) for call in calls]),
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Answer(**found) for found in json.loads(done.stdout)]


def _answer(call: Call, directory: Path) -> Answer:
    directory.mkdir()
    for name, text in call.files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    output, errors = (Path(f"{directory}.{name}") for name in ("stdout", "stderr"))
    child = os.fork()
    if child == 0:
        _become(call, directory, output, errors)
    _, ended = os.waitpid(child, 0)
    texts = {"stdout": _text(output), "stderr": _text(errors)}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_file() and _text(path) != call.files.get(name):
            texts[name] = _text(path)
    return Answer(status=os.waitstatus_to_exitcode(ended), texts=texts)


def _become(call: Call, directory: Path, output: Path, errors: Path) -> None:
    """Turn this process into the call; never returns."""
    status = 99
    try:
        os.chdir(directory)
        os.environ.update(call.variables)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for descriptor, path in ((1, output), (2, errors)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        from unloader.cli import main

        status = main(call.arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    os._exit(status)


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _main() -> None:
    from importlib import import_module

    from unloader.cli.group import COMMANDS

    for name in COMMANDS.values():
        import_module(f"unloader.cli.commands.{name}")
    for name in ("unloader.api", "unloader.sources.duckdb.source"):
        import_module(name)

    directory = Path(sys.argv[1])
    calls = [Call(**found) for found in json.load(sys.stdin)]
    found = [_answer(call, directory / f"{number}") for number, call in enumerate(calls)]
    json.dump([asdict(answer) for answer in found], sys.stdout)


if __name__ == "__main__":
    _main()
