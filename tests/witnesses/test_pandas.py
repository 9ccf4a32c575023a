"""pandas, in a separate environment, reads the written files; and numpy changes no run.

The suite's own environment has no numpy, like a newcomer's, and every process that has it loads it.
For CSV the claim is the values of every dialect that encloses with one character. pandas compares
NULL texts without a look at enclosures, so only a text that no value has identifies NULL.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from encoders import random_batches as text_encoders
from encoders.hostile_texts import hostile_batch, hostile_texts, rows_of
from encoders.parquet_files import typed_rows
from encoders.parquet_files import write as write_parquet
from msgspec.structs import replace
from processes import command
from witness_clients import Missing, pandas_python

from writers.model import TextFormat
from writers.text.dialects import DIALECTS

READER = Path(__file__).parent / "pandas_reader/read.py"
FORMS = {
    **{name: DIALECTS[name] for name in ("rfc4180", "excel", "postgres", "mysql")},
    "strings": TextFormat(enclose="strings", delimiter=";", enclosure="'"),
    "utf-16": TextFormat(encoding="utf-16"),
}


@pytest.fixture(scope="module")
def python() -> str:
    try:
        return pandas_python()
    except Missing as missing:
        pytest.skip(f"no pandas: {missing}")


@pytest.fixture(params=text_encoders.NAMES)
def write(request: pytest.FixtureRequest) -> Callable[..., bytes]:
    """Write a batch in a dialect with one of the encoders, and return the whole file."""
    if request.param == "native":
        text_encoders.native_or_skip()
    return partial(text_encoders.written, request.param)


def answers(python: str, *asked: dict[str, Any]) -> list[Any]:
    done = subprocess.run(
        [python, str(READER)],
        input="".join(f"{json.dumps(each)}\n" for each in asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def read_csv(path: Path, form: TextFormat, **options: Any) -> dict[str, Any]:
    """Return the request to read a file of this form."""
    backslash = form.escape == "backslash"
    return {
        "csv": str(path),
        "options": {
            "keep_default_na": False,
            "sep": form.delimiter,
            "quotechar": form.enclosure,
            "doublequote": not backslash,
            "escapechar": "\\" if backslash else None,
            "encoding": form.encoding,
            "header": 0 if form.header else None,
            **options,
        },
    }


def test_every_value_comes_back(python: str, write: Callable[..., bytes], tmp_path: Path) -> None:
    """Each hostile text is read back exactly, in every dialect."""
    asked, expected = [], []
    for name, form in FORMS.items():
        batch = hostile_batch(hostile_texts(form), nulls=False)
        (tmp_path / name).write_bytes(write(batch, form))
        asked.append(read_csv(tmp_path / name, form, na_filter=False))
        expected.append([list(row) for row in rows_of(batch)])
    found = answers(python, *asked)
    assert found == expected
    assert all(len(rows) > 10 for rows in found)


def test_null_is_told_from_every_value(
    python: str, write: Callable[..., bytes], tmp_path: Path
) -> None:
    """With a NULL text that no value has, NULL is missing and the empty text is not."""
    asked, expected = [], []
    for name in ("rfc4180", "excel", "postgres"):
        form = replace(DIALECTS[name], null="<null>")
        batch = hostile_batch([text for text in hostile_texts(form) if text != form.null])
        (tmp_path / name).write_bytes(write(batch, form))
        asked.append(read_csv(tmp_path / name, form, na_values=["<null>"]))
        expected.append([list(row) for row in rows_of(batch)])
    found = answers(python, *asked)
    assert found == expected
    assert any(None in row for rows in found for row in rows)


def test_parquet_comes_back(python: str, tmp_path: Path) -> None:
    """Each value of each type comes back through a frame of pandas."""
    table = typed_rows()
    (path,) = write_parquet(tmp_path, table)
    copy = tmp_path / "copy.parquet"
    assert answers(python, {"parquet": str(path), "to": str(copy)}) == [True]
    assert pq.read_table(copy).to_pylist() == table.to_pylist()


@pytest.mark.parametrize("options", [(), ("--format", "parquet")], ids=["csv", "parquet"])
def test_numpy_changes_no_run(python: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    """The command writes the same bytes where its libraries find numpy and where they do not."""
    database = tmp_path / "t.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, i / 7 AS d, (i / 100)::DECIMAL(18, 4) AS n, "
            "'row ' || i AS s, TIMESTAMP '2001-01-01' + INTERVAL (i) HOUR AS at, "
            "'row'::BLOB AS b FROM range(5000) r(i)"
        )
    # numpy first, from the other environment; everything else from this one.
    numpy = subprocess.run(
        [python, "-c", "import numpy; print(numpy.__path__[0])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    (tmp_path / "with_numpy").mkdir()
    for each in (Path(numpy), Path(numpy).with_name("numpy.libs")):
        if each.exists():
            (tmp_path / "with_numpy" / each.name).symlink_to(each)
    found = []
    for name in ("with_numpy", "without"):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path / name), os.getcwd()))}
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "unloader", "run", f"duckdb://{database}",
             "--table", "t", "--to", str(tmp_path / f"to_{name}"), *options],
            env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        loaded = re.search(r"\| +numpy\.linalg$", done.stderr, re.MULTILINE) is not None
        assert loaded == (name == "with_numpy")
        units = command.manifest_of(tmp_path / f"to_{name}")["units"]
        found.append([file["checksum"] for unit in units for file in unit["files"]])
    assert found[0] == found[1]
    assert found[0]
