"""What other programs read in text files: rows of texts, None for NULL where they can tell it."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from encoders.sqlldr_rules import Field, FieldList, var_records

Rows = dict[int, tuple[str | None, ...]]
"""The other columns by the first, which is an id."""


def csv_rows(files: Sequence[Path], encoding: str = "utf-8", **form: Any) -> Rows:
    """Return the rows behind a header by Python's own reader, to which NULL is the empty text."""
    found: Rows = {}
    for file in files:
        with file.open(encoding=encoding, newline="") as stream:
            records = list(csv.reader(stream, strict=True, **form))
        found.update((int(record[0]), tuple(record[1:])) for record in records[1:])
    return found


def sqlldr_rows(files: Sequence[Path], columns: int) -> Rows:
    """Return the rows of `"var 10"` by the rules of SQL*Loader."""
    rules = FieldList(
        fields=(Field(),) * (columns + 1), terminated_by=",", optionally_enclosed_by="~~"
    )
    records = [
        rules.values(record.removesuffix(b"\r\n"))
        for file in files
        for record in var_records(file.read_bytes(), 10)
    ]
    return {int(str(record[0])): tuple(record[1:]) for record in records}


def copied_rows(
    postgres: Any, url: str, files: Sequence[Path], names: Sequence[str], options: str
) -> Rows:
    """Return the rows that PostgreSQL's own COPY loads."""
    columns = ", ".join(f"{name} text" for name in names)
    copies = "".join(f"\\copy back from '{file}' with ({options})\n" for file in files)
    postgres.run(
        "SET client_encoding = 'UTF8'; DROP TABLE IF EXISTS back;"
        f"CREATE TABLE back (id integer, {columns});\n{copies}",
        url=url,
    )
    return asked_rows(postgres, url, "SELECT * FROM back", names)


def asked_rows(postgres: Any, url: str, query: str, names: Sequence[str]) -> Rows:
    """Return the rows of a query for an id and texts, which reach us as the server has them."""
    shown = postgres.run(
        "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres';"
        "SELECT encode(convert_to(coalesce(json_agg(to_jsonb(asked))::text, '[]'), 'UTF8'), 'hex') "
        f"FROM ({query}) AS asked",
        url=url,
    )
    rows = json.loads(bytes.fromhex("".join(shown.split())))
    return {row["id"]: tuple(row[name] for name in names) for row in rows}
