"""Transforms and masks from end to end: what is written, what is told of it, and what is refused."""

from __future__ import annotations

import base64
import csv
import hashlib
import hmac
import json
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from processes import command

KEY = bytes(range(32))
CODED = base64.b64encode(KEY).decode()
ENV = {"UNLOADER_MASKING_KEY_DEFAULT": CODED}
ROWS = 2_000
UNITS = ("--unit-bytes", "32kB", "--parallelism", "2")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a table of persons, in some units."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE persons AS SELECT i::INT AS id, 'p' || i || '@mail.example' AS email, "
            "DATE '1970-01-01' + i::INT AS born, 4000000000000000 + i AS card, "
            f"(i * 1.25)::DECIMAL(12, 2) AS amount FROM range({ROWS}) r(i)"
        )
    return f"duckdb://{path}"


def digest(text: str) -> str:
    """Return the mask of a text, as any program with the key computes it."""
    return hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()


def unload(source: str, to: Path, *options: str) -> dict[str, object]:
    """Unload the table; return the manifest."""
    command.run("run", source, "--table", "persons", "--to", str(to), *UNITS, *options, env=ENV)
    return command.manifest_of(to)


def lines(to: Path) -> list[dict[str, str]]:
    """Return the records of all CSV files, by the names in their header."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(to.glob("*.csv"))]
    return [row for text in texts for row in csv.DictReader(text.splitlines())]


def columns(manifest: dict[str, object]) -> dict[str, dict[str, object]]:
    """Return the columns of a manifest by name."""
    listed = json.loads(json.dumps(manifest["columns"]))
    return {column["name"]: column for column in listed}


def test_a_masked_and_renamed_column_in_csv_and_parquet(source: str, tmp_path: Path) -> None:
    """By several workers: the value of each row is the HMAC that anybody with the key computes."""
    options = ("--mask", "email=hmac", "--rename", "email=mail")
    manifest = unload(source, tmp_path / "csv", *options)
    found = lines(tmp_path / "csv")
    assert {row["id"]: row["mail"] for row in found} == {
        str(number): digest(f"p{number}@mail.example") for number in range(ROWS)
    }
    assert list(found[0]) == ["id", "mail", "born", "card", "amount"]
    unload(source, tmp_path / "parquet", *options, "--format", "parquet")
    table = pq.read_table(tmp_path / "parquet").sort_by("id")
    assert table.column("mail").to_pylist() == [
        digest(f"p{number}@mail.example") for number in range(ROWS)
    ]
    assert table.schema.names == list(found[0])
    mail, amount = (columns(manifest)[name] for name in ("mail", "amount"))
    assert (mail["lossless"], mail["read_from"], mail["source_type"]) == (
        "masked",
        ["email"],
        "VARCHAR",
    )
    masked = mail["masked"]
    assert isinstance(masked, dict)
    assert (masked["method"], masked["key_name"]) == ("hmac", "default")
    assert amount["lossless"] is True
    assert "masked" not in amount


def test_all_kinds_of_changes_in_the_order_of_the_options(source: str, tmp_path: Path) -> None:
    """Expressions, constants, casts, masks, names, and the columns that are written."""
    options = (
        *("--expression", "label=email || '/' || card", "--expression", 'twice="label" || label'),
        *("--constant", "batch=7", "--cast", "batch=int16", "--cast", "amount=string"),
        *("--mask", "card=redact", "--mask", "born=truncate-date,to=year"),
        *("--rename", "id=amount", "--rename", "amount=id", "--where", "id = 900"),
        *("--output-columns", "amount,id,born,batch,twice,card", "--format", "parquet"),
    )
    unload(source, tmp_path / "out", *options)
    (row,) = pq.read_table(tmp_path / "out").to_pylist()
    assert {name: str(value) for name, value in row.items()} == {
        "amount": "900",
        "id": "1125.00",
        "born": "1972-01-01",
        "batch": "7",
        "twice": "p900@mail.example/4000000000000900" * 2,
        "card": "None",
    }


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--mask", "mail=hmac"), 2, "'mail'"),
        (("--mask", "amount=truncate,characters=3"), 2, "amount"),
        (("--mask", "email=sha"), 2, "'sha'"),
        (("--mask", "email=hmac,size=3"), 2, "'size'"),
        (("--mask", "born=truncate-date"), 2, "needs to="),
        (("--mask", "email=hmac,key=other"), 3, "UNLOADER_MASKING_KEY_OTHER"),
        (("--rename", "email=id"), 2, "'id'"),
        (("--expression", "x=nothing + 1"), 2, "'nothing'"),
        (("--cast", "amount=money"), 2, "'money'"),
        (("--mask-key", CODED, "--mask", "email=hmac"), 2, "not shown"),
        (("--mask", "email=hmac", "--verify", "source"), 2, "--verify source"),
    ],
)
def test_what_cannot_be_done_is_one_error_before_anything_is_written(
    source: str, tmp_path: Path, options: tuple[str, ...], status: int, words: str
) -> None:
    """It names what is wrong, and no key."""
    dest = tmp_path / "out"
    text = command.error_of(
        "run", source, "--table", "persons", "--to", str(dest), *options, status=status, env=ENV
    )
    assert words in text
    assert CODED not in text
    assert not dest.exists() or not list(dest.glob("*.csv"))
