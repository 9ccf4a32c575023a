"""Every file that a command reads, with something else in its place: one clear error, and no wait."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import long_tests
import pytest
from processes import command

ROWS = 400
DATA = "t.0001"


def _socket(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        # The names of sockets are short.
        before = Path.cwd()
        os.chdir(path.parent)
        try:
            listener.bind(path.name)
        finally:
            os.chdir(before)


def _link_out(path: Path) -> None:
    path.symlink_to(path.rename(path.parent.parent / f"elsewhere-{path.name}"))


def _replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        path.unlink()
        make(path)

    return put


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": _replaced(os.mkfifo),
    "directory": _replaced(Path.mkdir),
    "socket": _replaced(_socket),
    "device": _replaced(lambda path: path.symlink_to("/dev/zero")),
    "dangling link": _replaced(lambda path: path.symlink_to("nowhere")),
    "loop": _replaced(lambda path: path.symlink_to(path.name)),
    "link out": _link_out,
    "empty": _replaced(Path.touch),
    "garbage": _replaced(lambda path: path.write_bytes(os.urandom(999))),
    "gone": Path.unlink,
    "huge": lambda path: os.truncate(path, 1 << 40),
}
if os.geteuid():
    KINDS["unreadable"] = lambda path: path.chmod(0)

SHORT = ("pipe",)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that are finished, broken and over several tables, and the files that commands take."""
    home = tmp_path_factory.mktemp("hostile")
    path = home / "s.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        for name in ("t", "u", "broken"):
            database.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, a TEXT, n INTEGER)")
            rows = [(i, f"text {i}", i) for i in range(ROWS)]
            database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
        database.execute(f"UPDATE broken SET n = 'none' WHERE id = {ROWS - 1}")
    source = f"sqlite://{path}"
    small = ("--unit-bytes", "4kB", "--quiet")
    outputs = {
        "csv": (),
        "gzip": ("--compression", "gzip"),
        "zstd": ("--compression", "zstd"),
        "parquet": ("--format", "parquet"),
        "tsv": ("--dialect", "tsv"),
    }
    for name, options in outputs.items():
        command.run("run", source, "--table", "t", "--to", f"{home}/{name}", *options, *small)
    many = ("--table", "t", "--table", "u", "--to", f"{home}/many/{{table}}")
    command.run("run", source, *many, *small)
    broken = ("--table", "broken", "--to", f"{home}/broken", "--parallelism", "1", *small)
    command.error_of("run", source, *broken, status=6)
    command.run("plan", source, "--table", "t", "--to", f"{home}/out", "--output", f"{home}/p.json")
    (home / "j.toml").write_text(f'source = "{source}"\ntable = "t"\nto = "{home}/out"\n')
    (home / "tables").write_text("t\n")
    (home / "points.csv").write_text("parallelism,seconds\n1,10\n2,5\n4,3\n")
    (home / "key").write_text("QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0MTIzNDU=\n")
    (home / "key").chmod(0o600)
    return home


SOURCE = "sqlite://HOME/s.sqlite"
RUN = ("run", SOURCE, "--table", "t", "--to", "HOME/out")
POSTGRES = "postgresql://u@127.0.0.1:1/d"
CASES: list[tuple[str, tuple[str, ...]]] = [
    *(
        (f"{run}/{DATA}.{end}", ("verify", f"HOME/{run}", *options))
        for run, end in (
            ("csv", "csv"),
            ("gzip", "csv.gz"),
            ("zstd", "csv.zst"),
            ("parquet", "parquet"),
            ("tsv", "tsv"),
        )
        for options in ((), ("--level", "full"))[: 2 if run in ("csv", "parquet") else 1]
    ),
    *(
        ("csv/_manifest.json", (name, "HOME/csv", *options))
        for name, *options in (
            ("verify",),
            ("status",),
            ("runs",),
            ("report", "--output", "HOME/page"),
            ("resume",),
            ("clean",),
            ("merge",),
            ("stop",),
        )
    ),
    ("csv/_manifest.json", ("report", "HOME/csv/_manifest.json", "--output", "HOME/page")),
    ("csv/_manifest.json", ("size", "--from", "HOME/csv/_manifest.json", "--window", "1h")),
    ("csv/_manifest.json", ("size", "--from", "HOME/csv", "--window", "1h")),
    ("csv/_manifest.json", ("run", SOURCE, "--table", "t", "--to", "HOME/csv", "--overwrite")),
    *(
        (f"many/{name}", (verb, "HOME/many"))
        for name in ("_manifest.json", "t/_manifest.json", "t/t.0001.csv")
        for verb in ("verify", "status", "runs")
    ),
    *(
        (f"broken/_run/{name}", (verb, "HOME/broken"))
        for name in ("lock", "run.json", "journal.jsonl", "status.json", "_manifest.json", "STAGED")
        for verb in ("resume", "verify", "status", "runs", "stop", "clean", "report")
    ),
    ("p.json", ("run", "HOME/p.json")),
    ("j.toml", ("run", "HOME/j.toml")),
    ("j.toml", ("check", "HOME/j.toml")),
    ("s.sqlite", RUN),
    ("s.sqlite", ("describe", SOURCE, "--table", "t")),
    ("tables", ("run", SOURCE, "--tables-from", "HOME/tables", "--to", "HOME/out/{table}")),
    ("points.csv", ("sweep", "--replay", "HOME/points.csv")),
    ("points.csv", ("size", "--from", "HOME/points.csv", "--rows", "1M", "--window", "1h")),
    ("points.csv", (*RUN, "--ceilings", "HOME/points.csv")),
    ("key", ("describe", POSTGRES, "--table", "t", "--password-file", "HOME/key")),
    ("key", (*RUN, "--mask", "a=hmac", "--mask-key", "file:HOME/key")),
    ("key", (*RUN, "--format", "parquet", "--parquet-key-file", "HOME/key")),
    ("key", (*RUN, "--encrypt-to", "@HOME/key")),
    ("key", ("verify", "HOME/csv", "--decrypt-with", "HOME/key")),
]


@pytest.mark.parametrize(
    "kind", [*SHORT, *long_tests.also("kinds of files", *sorted(KINDS.keys() - {*SHORT}))]
)
@pytest.mark.parametrize(
    ("target", "arguments"), CASES, ids=[f"{' '.join(call[:1])}-{name}" for name, call in CASES]
)
def test_a_file_that_is_something_else_is_one_clear_error(
    home: Path, tmp_path: Path, target: str, arguments: tuple[str, ...], kind: str
) -> None:
    """A command ends with an error and what to do next, or does without the file."""
    here = tmp_path / "home"
    shutil.copytree(home, here, symlinks=True)
    for name in ("p.json", "j.toml", "broken/_run/lock", "broken/_run/run.json"):
        (here / name).write_text((here / name).read_text().replace(str(home), str(here)))
    path = here / target
    if target.endswith("STAGED"):
        path = sorted(path.parent.glob("staged/*.part"))[0]
    KINDS[kind](path)
    done = command.ended(*(each.replace("HOME", str(here)) for each in arguments))
    print(done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    assert "[Errno" not in done.stderr
    assert "internal error" not in done.stderr
    if done.returncode and arguments[0] not in ("status", "check"):
        errors = [line for line in done.stderr.splitlines() if "unloader: error:" in line]
        assert len(errors) == 1
        assert "Next: " in errors[0]
    assert done.returncode != 1
