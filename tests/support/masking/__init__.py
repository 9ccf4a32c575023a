"""Runs whose columns are masked, and all the places in which a clear value could stand."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import psutil
import pyarrow.parquet as pq
from processes import command

ROWS = 1_500
CLEAR = "Xyzzy"
"""In each text that is masked."""
CARDS = "4929180000000"
"""What each number begins with that is masked; shorter digits would also occur by chance."""
BORN = "1961-04-12"
KEY = base64.b64encode(os.urandom(32)).decode()
OTHER_KEY = base64.b64encode(os.urandom(32)).decode()
MASKS = (
    *("--mask", "email=hmac", "--mask", "card=ff1,digits=16", "--mask", "name=tokenize"),
    *("--mask", "note=redact", "--mask", "born=shift-date,by=id,days=400"),
)
UNITS = ("--unit-bytes", "16kB", "--parallelism", "2")
LOWER_BYTES = 3
"""Of a card's eight: those in which cards differ."""


def rows() -> Iterator[tuple[int, str, str, int, str, str]]:
    """Yield id, e-mail address, name, card, day of birth and a note; some come twice."""
    for number in range(ROWS):
        person = number % 1_000
        yield (
            number,
            f"{CLEAR}.{person}@mail.example",
            f"{CLEAR} Nr. {person}",
            card(person),
            BORN,
            f"{CLEAR}: {person} calls at night",
        )


def card(person: int) -> int:
    """Return the number of a person's card."""
    return int(f"{CARDS}{person:03}")


def _binary_cards() -> Iterator[bytes]:
    """Yield what all cards have alike as 64-bit numbers, in both orders of bytes."""
    (alike,) = {card(person) >> 8 * LOWER_BYTES for person in (0, 999)}
    little = alike.to_bytes(8 - LOWER_BYTES, "little")
    yield from (little, little[::-1])


@dataclass(frozen=True, slots=True)
class Place:
    """A directory with all files of a run, and its messages."""

    path: Path
    said: list[str] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        """The key, and directories for temporary files that are looked at, too."""
        names = ("TMPDIR", "HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
        own = {name: str(self.path / name) for name in names}
        for each in own.values():
            Path(each).mkdir(exist_ok=True)
        return {"UNLOADER_MASKING_KEY_DEFAULT": KEY, **own}

    def job(self, url: str, *options: str) -> tuple[str, ...]:
        """Return a run into the directory `out`."""
        return ("run", url, "--table", "persons", "--to", str(self.path / "out"), *UNITS, *options)

    def run(self, *arguments: str, status: int = 0, env: dict[str, str] | None = None) -> str:
        """Call the command; return its stderr."""
        done = command.ended("--debug", *arguments, env={**self.env, **(env or {})})
        assert done.returncode == status, done.stderr
        self.said.extend((done.stdout, done.stderr))
        return done.stderr

    def check(self) -> None:
        """Fail if a clear value or the key is in any file or its name, or in the messages."""
        (self.path / "seen").write_text("the directory is not empty")
        names = "\n".join(map(str, self.path.rglob("*")))
        files = {path: path.read_bytes() for path in self.path.rglob("*") if path.is_file()}
        for secret in (CLEAR, CARDS, KEY, OTHER_KEY, BORN):
            for path, data in files.items():
                assert secret.encode() not in data, path
                assert secret.encode("utf-16-le") not in data, path
            assert secret not in "".join(self.said)
            assert secret not in names
        for path, data in files.items():
            for secret_bytes in (base64.b64decode(KEY), *_binary_cards()):
                assert secret_bytes not in data, path
            if path.suffix == ".parquet" and "staged" not in path.parts:
                _check_footer(path)


def _check_footer(path: Path) -> None:
    """Fail if the statistics of a Parquet file differ from its values."""
    file = pq.ParquetFile(path)
    values = {name: set(each) for name, each in file.read().to_pydict().items()}
    for group in range(file.num_row_groups):
        for index in range(file.metadata.num_columns):
            column = file.metadata.row_group(group).column(index)
            found = column.statistics
            if found is not None and found.has_min_max:
                assert {found.min, found.max} <= values[column.path_in_schema], path


def processes_of(pids: Iterable[int]) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield of each process that is there its id, its arguments and its first environment."""
    for pid in pids:
        try:
            folder = Path(f"/proc/{pid}")
            yield pid, (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except (OSError, psutil.Error):
            continue


def persons_of_duckdb(path: Path) -> str:
    """Make a DuckDB file with a table of persons, whose rows are `rows`; return its URL."""
    with duckdb.connect(str(path)) as connection:
        values = ", ".join(map(str, rows()))
        connection.execute(
            "CREATE TABLE persons (id INT, email VARCHAR, name VARCHAR, card BIGINT, born DATE, "
            f"note VARCHAR); INSERT INTO persons VALUES {values}"
        )
    return f"duckdb://{path}"
