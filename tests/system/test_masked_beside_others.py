"""Columns beside a masked one: the same bytes, the same word on their exactness, in every format."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from long_tests import OTHER_ROUTES, also
from masking import KEY
from postgres import hostile_rows
from postgres.hostile_rows import INFINITE, NAME
from processes import command

MASKED = 'Mixed "Case"'
ENV = {"UNLOADER_MASKING_KEY_DEFAULT": KEY}
ONE_UNIT = ("--parallelism", "1", "--split", "none", "--quiet", "--as-text", ",".join(INFINITE))


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    """A database with a table of hostile values of all types."""
    found: str = postgres.database("beside_masks")
    postgres.run(hostile_rows.create(500, partitions=2), url=found)
    return found


def unload(url: str, to: Path, *options: str) -> dict[str, Any]:
    """Unload the table as one work unit; return its columns in the manifest by name."""
    table = ("--table", NAME, "--to", str(to), *ONE_UNIT)
    command.run("run", url, *table, *options, env=ENV)
    return {column["name"]: column for column in command.manifest_of(to)["columns"]}


@pytest.mark.long("masked runs")
@pytest.mark.parametrize(
    "form",
    [
        ("--dialect", "rfc4180"),
        *also(
            OTHER_ROUTES,
            (("--format", "parquet"),),
            (("--dialect", "postgres"),),
            (("--dialect", "mysql"),),
            (("--dialect", "tsv", "--substitute", "?"),),
            (("--dialect", "sqlldr-var"),),
            (("--dialect", "rfc4180", "--compression", "gzip"),),
        ),
    ],
)
def test_other_columns_are_as_they_would_be_without_a_mask(
    url: str, tmp_path: Path, form: tuple[str, ...]
) -> None:
    """PostgreSQL itself makes their text where nothing is masked, and we where something is."""
    name = f'"{MASKED.replace(chr(34), chr(34) * 2)}"'
    plain = unload(url, tmp_path / "plain", *form, "--exclude", name)
    mask = ("--mask", f"{name}=hmac")
    others = ",".join('"' + each.replace('"', '""') + '"' for each in plain)
    unload(url, tmp_path / "left-out", *form, *mask, "--output-columns", others)
    (first,), (second,) = (
        [path for path in place.iterdir() if path.name[0] != "_"]
        for place in (tmp_path / "plain", tmp_path / "left-out")
    )
    if "parquet" in form:
        assert _values(first) == _values(second)
    else:
        assert first.read_bytes() == second.read_bytes()
    masked = unload(url, tmp_path / "masked", *form, *mask)
    assert masked[MASKED]["lossless"] == "masked"
    assert masked[MASKED]["masked"]["method"] == "hmac"
    exact = {each: column["lossless"] for each, column in masked.items() if each != MASKED}
    assert exact == {each: column["lossless"] for each, column in plain.items()}
    assert all("masked" not in masked[each] for each in plain)
    _check_beside(tmp_path / "plain", tmp_path / "masked", form)


def _values(place: Path) -> dict[str, list[str]]:
    """Return the columns of Parquet; NaN is itself in them."""
    columns = pq.read_table(place).to_pydict()
    return {name: list(map(repr, values)) for name, values in columns.items()}


def _records(file: Path) -> list[list[str]]:
    with file.open(newline="", encoding="utf-8") as text:
        return list(csv.reader(text))


def _check_beside(plain: Path, masked: Path, form: tuple[str, ...]) -> None:
    """Compare the other columns with the masked one among them."""
    if "parquet" in form:
        beside = _values(masked)
        assert len(set(beside.pop(MASKED))) > 3
        assert _values(plain) == beside
    elif form == ("--dialect", "rfc4180"):
        one, other = (
            _records(place / f"{hostile_rows.TABLE}.0001.csv") for place in (plain, masked)
        )
        index = other[0].index(MASKED)
        assert [row[:index] + row[index + 1 :] for row in other] == one
        assert {len(row[index]) for row in other[1:]} == {0, 64}
