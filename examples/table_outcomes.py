"""What runs over many tables have left: read by pyarrow, DuckDB and Python's csv."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults import outcomes
from killed_processes import Broken

COLUMNS = "id, owner, balance, price, name"
TYPES = {"price": "DECIMAL(12,2)", "name": "VARCHAR"}


def manifest_of(directory: Path) -> dict[str, Any]:
    """Return the manifest in a directory."""
    found: dict[str, Any] = json.loads((directory / outcomes.MANIFEST).read_bytes())
    return found


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The directories of a run over many tables."""

    home: Path
    lake: Path | None
    """Where the second output of each table goes."""

    def directories(self) -> list[Path]:
        """Return the existing directories of all tables and outputs."""
        places = [self.home] if self.lake is None else [self.home, self.lake]
        return [
            each
            for place in places
            if place.exists()
            for each in sorted(place.iterdir())
            if each.is_dir() and each.name != outcomes.RUN and not each.name.startswith(".")
        ]

    def of(self, table: str, *, lake: bool = False) -> Path:
        """Return the directory of a published table."""
        place = self.lake if lake else self.home
        assert place is not None
        for directory in place.iterdir():
            is_whole = (directory / outcomes.MANIFEST).is_file()
            if is_whole and manifest_of(directory)["table"]["name"] == table:
                return directory
        raise Broken(f"{table} is not in {place}")

    def run_id(self) -> str:
        """Return the id of the finished run in the home; empty without a finished run."""
        return self.run_ids().get(self.home, "")

    def run_ids(self) -> dict[Path, str]:
        """Return the ids of the finished runs of the home and of each table and output."""
        places = [*([self.home] if self.home.exists() else []), *self.directories()]
        return {
            each: manifest_of(each)["run_id"]
            for each in places
            if (each / outcomes.MANIFEST).is_file()
        }

    def staged(self) -> dict[str, Any]:
        """Return the finished units of all tables that are not published."""
        return {
            f"{directory}: {unit}": files
            for directory in self.directories()
            for unit, files in outcomes.staged_identities(directory).items()
        }

    def final(self) -> dict[str, Any]:
        """Return the units of all published tables, each with its files."""
        return {
            f"{directory}: {unit}": files
            for directory in self.directories()
            for unit, files in outcomes.final_identities(directory).items()
        }

    def left(self) -> list[str]:
        """Return what a complete run should not have left."""
        places = [self.home.parent, *self.home.parent.glob("out*")]
        return [
            str(path)
            for place in places
            for path in place.rglob("*")
            if path.name == outcomes.RUN or ".unloader-" in path.name or ".part" in path.name
        ]


def wrong_with(directory: Path) -> str:
    """Return the fault of a table's directory; empty if it has no fault.

    While the run publishes the table, according to its record, files may have their names before
    the manifest, which is the last one.
    """
    if not (directory / outcomes.MANIFEST).exists():
        names = {entry.name for entry in directory.iterdir()} - {outcomes.RUN}
        begun = outcomes.publication_has_begun(directory)
        return "" if begun else outcomes.unfinished_under_final_names(directory) and str(names)
    return outcomes.unfinished_under_final_names(directory)


def rows_of(directory: Path) -> int:
    """Read all files of a published table; return how many rows they have.

    Raises:
        Broken: The number differs from the manifest.
    """
    import pyarrow.parquet as pq

    document = manifest_of(directory)
    total = 0
    for unit in document["units"]:
        for file in unit["files"]:
            path = directory / file["path"]
            if path.suffix == ".parquet":
                found = pq.read_table(path).num_rows
            else:
                with open(path, newline="", encoding="utf-8") as text:
                    found = sum(1 for _ in csv.reader(text)) - 1
            if found != file["rows"]:
                raise Broken(f"{path} has {found} rows, but its manifest records {file['rows']}")
            total += found
    if total != document["totals"]["rows"] or document["verified"]["result"] != "ok":
        raise Broken(f"{directory} has {total} rows, but its manifest records {document['totals']}")
    return total


def same_rows(text: Path, lake: Path, is_filtered: bool) -> None:
    """Compare the two outputs of a table: Parquet has every third row of CSV, or each.

    Raises:
        Broken: It has others.
    """
    import duckdb

    csv_files, parquet = list(_files(text)), list(_files(lake))
    if not csv_files or not parquet:
        raise Broken(f"{text} or {lake} has no file")
    with open(csv_files[0], encoding="utf-8") as file:
        columns = COLUMNS + (", made" if "made" in file.readline() else "")
    types = ", ".join(f"'{each}': 'VARCHAR'" for each in columns.split(", "))
    rows_of_text = (
        f"SELECT {COLUMNS} FROM read_csv({_listed(csv_files)}, header = true, all_varchar = true, "
        "delim = ',', quote = '\"', escape = '\"', auto_detect = false, nullstr = '', "
        f"allow_quoted_nulls = false, columns = {{{types}}})"
        + (" WHERE id::BIGINT % 3 = 0" if is_filtered else "")
    )
    cast = ", ".join(f"{each}::{TYPES.get(each, 'BIGINT')}" for each in COLUMNS.split(", "))
    first = f"SELECT {cast} FROM ({rows_of_text})"
    other = f"SELECT {cast} FROM read_parquet({_listed(parquet)})"
    with duckdb.connect() as connection:
        for a, b in ((first, other), (other, first)):
            ((rows,),) = connection.execute(
                f"SELECT count(*) FROM (({a}) EXCEPT ALL ({b}))"
            ).fetchall()
            if rows:
                raise Broken(f"{rows} rows of {text} and {lake} differ")


def _listed(files: list[str]) -> str:
    """Return names of files as DuckDB's SQL has them."""
    return "[" + ", ".join("'" + each.replace("'", "''") + "'" for each in files) + "]"


def _files(directory: Path) -> Iterator[str]:
    for unit in manifest_of(directory)["units"]:
        yield from (str(directory / file["path"]) for file in unit["files"])
