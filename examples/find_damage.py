#!/usr/bin/env python3
"""Damage finished runs at random, one bit or one edit at a time, and count what `verify` finds.

    python examples/find_damage.py
    python examples/find_damage.py --flips 500 --edits 100 --seed 7 --json

Unloads a small table several times, as CSV and as Parquet under several codecs. Then, again and
again: one of the runs is chosen, damaged, verified as `unloader verify --strict` does, and
restored.

  flips   one random bit of one random file, the manifest among them
  edits   half of them of a data file: deleted, truncated, lengthened, renamed, copied to another
          name, added, or exchanged with another; and half of the manifest: a value changed, a key
          or an item removed or added

Each damage has to be found, and the answer has to name the file: of a renamed or exchanged one both
names. The exit status is 0 only if all of them were.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb

from unloader import api
from unloader.errors import VerifyMismatch
from unloader.model import OutputOptions, Request, SeatOptions, Selection, SourceSpec
from unloader.request.names import parse_table
from writers.model import Compression, ParquetFormat, TextFormat
from writers.text.dialects import dialect

MANIFEST = "_manifest.json"

OUTPUTS: dict[str, tuple[TextFormat | ParquetFormat, Compression]] = {
    "csv": (TextFormat(), Compression()),
    "csv.gz": (TextFormat(), Compression(codec="gzip")),
    "csv.zst": (TextFormat(), Compression(codec="zstd")),
    "csv.lz4": (TextFormat(), Compression(codec="lz4")),
    "sqlldr-var": (dialect("sqlldr-var"), Compression()),
    "parquet.zst": (ParquetFormat(), Compression(codec="zstd")),
    "parquet.snappy": (ParquetFormat(), Compression(codec="snappy")),
    "parquet": (ParquetFormat(), Compression()),
}


def make_runs(place: Path, rows: int) -> list[Path]:
    """Unload a table of three partitions in every way; return the directories."""
    database = place / "source.db"
    with closing(duckdb.connect(str(database))) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT range AS id, (range * 7.25)::DECIMAL(12,2) AS amount, "
            "md5(range::VARCHAR) AS name, TIMESTAMP '2024-01-01' + to_minutes(range) AS at "
            f"FROM range({3 * rows})"
        )
        connection.execute(
            "CREATE TABLE unloader_partitions AS SELECT 'main' AS table_schema, "
            "'t' AS table_name, 'p' || range AS partition_name, range AS position, "
            f"range * {rows} AS first_rowid, (range + 1) * {rows} - 1 AS last_rowid FROM range(3)"
        )
    found = []
    for name, (shape, compression) in OUTPUTS.items():
        request = Request(
            source=SourceSpec(kind="duckdb", location=f"duckdb://{database}"),
            selection=Selection(table=parse_table("t")),
            output=OutputOptions(
                destination=str(place / name), format=shape, compression=compression
            ),
            parallelism=1,
            split="partition",
            seats=SeatOptions(numa="off"),
        )
        api.unload(request)
        found.append(place / name)
    return found


class Damage:
    """Random damage to one run, with the names that the answer has to hold."""

    def __init__(self, run: Path, chance: random.Random) -> None:
        """Take a finished run."""
        self._run = run
        self._chance = chance
        self._data = sorted(path for path in run.iterdir() if path.name != MANIFEST)

    def flip(self) -> tuple[str, ...]:
        """Flip a bit of any file."""
        path = self._chance.choice([*self._data, self._run / MANIFEST])
        data = bytearray(path.read_bytes())
        data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        path.write_bytes(data)
        return (path.name,)

    def delete(self) -> tuple[str, ...]:
        """Remove a file."""
        path = self._any()
        path.unlink()
        return (path.name,)

    def truncate(self) -> tuple[str, ...]:
        """Cut a file anywhere."""
        path = self._any()
        data = path.read_bytes()
        path.write_bytes(data[: self._chance.randrange(len(data))])
        return (path.name,)

    def lengthen(self) -> tuple[str, ...]:
        """Add bytes to a file."""
        path = self._any()
        with path.open("ab") as file:
            file.write(self._chance.randbytes(self._chance.randint(1, 100)))
        return (path.name,)

    def rename(self) -> tuple[str, ...]:
        """Give a file a name of no file."""
        path, other = self._any(), self._new_name()
        path.rename(self._run / other)
        return path.name, other

    def duplicate(self) -> tuple[str, ...]:
        """Copy a file to a new name."""
        other = self._new_name()
        shutil.copy(self._any(), self._run / other)
        return (other,)

    def add(self) -> tuple[str, ...]:
        """Put a foreign file beside the run's."""
        other = self._new_name()
        (self._run / other).write_bytes(self._chance.randbytes(50))
        return (other,)

    def exchange(self) -> tuple[str, ...]:
        """Give two files each other's name."""
        one, other = self._chance.sample(self._data, 2)
        kept = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(kept)
        return one.name, other.name

    def edit_manifest(self) -> tuple[str, ...]:
        """Change, remove or add one value of the manifest, as a user with an editor could."""
        path = self._run / MANIFEST
        document = json.loads(path.read_text("utf-8"))
        holder, key = self._chance.choice(_places(document))
        what = self._chance.choice(("change", "remove", "add"))
        if what == "change":
            holder[key] = _other(holder[key])
        elif what == "remove":
            del holder[key]
        elif isinstance(holder, list):
            holder.insert(key, holder[key])
        else:
            holder[f"{key}_more"] = holder[key]
        path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
        return (MANIFEST,)

    def edit(self) -> Callable[[], tuple[str, ...]]:
        """Return one of the kinds of edits."""
        of_files = (
            self.delete,
            self.truncate,
            self.lengthen,
            self.rename,
            self.duplicate,
            self.add,
            self.exchange,
        )
        return self.edit_manifest if self._chance.random() < 0.5 else self._chance.choice(of_files)

    def _any(self) -> Path:
        return self._chance.choice(self._data)

    def _new_name(self) -> str:
        return f"new{self._chance.randrange(10**6)}{self._data[0].suffix}"


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every key of every object and every index of every list, with what holds it."""
    pairs = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [(value, key) for key, _ in pairs] + [
        place for _, each in pairs for place in _places(each)
    ]


def _other(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    return type(value)() if value else [1]


def missed(run: Path, names: tuple[str, ...]) -> str:
    """Verify a damaged run; return the fault of the answer, or an empty text if it is right."""
    try:
        api.verify(run, strict=True, parallelism=1)
    except VerifyMismatch as error:
        unnamed = [name for name in names if name not in error.message]
        return f"{', '.join(unnamed)} not named in: {error.message}" if unnamed else ""
    return "not found"


def restore(run: Path, kept: dict[str, bytes]) -> None:
    """Restore the files of a run; only files that differ are written."""
    for path in run.iterdir():
        if path.name not in kept:
            path.unlink()
    for name, data in kept.items():
        path = run / name
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)


def main() -> int:
    """Run the script; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=10_000, help="Number of bits (10000).")
    parser.add_argument("--edits", type=int, default=1_000, help="Number of edits (1000).")
    parser.add_argument("--rows", type=int, default=60, help="Rows of a file (60).")
    parser.add_argument("--seed", type=int, default=1, help="Of the choices (1).")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parser.parse_args()
    started = time.perf_counter()
    chance = random.Random(options.seed)
    tried: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="unloader-damage-") as place:
        runs = make_runs(Path(place), options.rows)
        kept = {run: {each.name: each.read_bytes() for each in run.iterdir()} for run in runs}
        for run in runs:
            api.verify(run, strict=True)
        for number in range(options.flips + options.edits):
            run = chance.choice(runs)
            damage = Damage(run, chance)
            act = damage.flip if number < options.flips else damage.edit()
            names = act()
            tried[act.__name__] += 1
            if problem := missed(run, names):
                wrong.append(f"{run.name}: {act.__name__} of {' and '.join(names)}: {problem}")
            restore(run, kept[run])
    total = sum(tried.values())
    report = {
        "tried": dict(tried),
        "total": total,
        "found_and_named": total - len(wrong),
        "wrong": wrong[:20],
        "seed": options.seed,
        "seconds": round(time.perf_counter() - started, 1),
    }
    if options.json:
        print(json.dumps(report))
    else:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in tried.items())
        print(f"{total - len(wrong):,} of {total:,} found and named ({kinds})")
        print("\n".join(wrong[:20]), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
