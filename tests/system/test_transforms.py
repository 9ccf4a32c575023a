"""Transforms and masks from end to end: files, manifests, and refusals."""

from __future__ import annotations

import base64
import csv
import hashlib
import hmac
import json
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow.parquet as pq
import pytest
from long_tests import OTHER_ROUTES, also
from processes import command

if TYPE_CHECKING:
    from conftest import PostgresServer

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


@pytest.mark.long(OTHER_ROUTES)
def test_a_plan_shows_what_would_be_written(source: str) -> None:
    """For each output: the type of each column, where it comes from, and how it is masked."""
    options = (
        *("--expression", "domain=split_part(email, '@', 2)", "--mask", "email=hmac"),
        *("--cast", "amount=double", "--rename", "amount=price"),
    )
    text = command.run("plan", source, "--table", "persons", *options, env=ENV)
    assert "masked by hmac (HMAC-SHA-256, 64 characters of hex, key default)" in text
    assert "computed from email; has clear values of email" in text
    assert "amount in the source; cast to double" in text
    document = json.loads(
        command.run("plan", source, "--table", "persons", *options, "--json", env=ENV)
    )
    assert [(each["name"], each.get("values")) for each in document["columns"]] == [
        *(("id", None), ("email", "masked"), ("born", None), ("card", None)),
        *(("price", None), ("domain", "changed")),
    ]
    routes = ("--route", "a:to=null:", "--route", "b:to=null:,mask=card=redact")
    text = command.run("plan", source, "--table", "persons", *routes, env=ENV)
    assert "masked by redact" in text.partition("route b")[2]
    assert "masked" not in text.partition("route b")[0]


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
        (("--mask", "email=hmac,key=other"), 3, "UNLOADER_MASKING_KEY_OTHER"),
        (("--mask-key", CODED, "--mask", "email=hmac"), 2, "not shown"),
        (("--mask", "email=hmac", "--verify", "source"), 2, "--verify source"),
        *also(
            OTHER_ROUTES,
            (("--mask", "amount=truncate,characters=3"), 2, "amount"),
            (("--mask", "email=sha"), 2, "'sha'"),
            (("--mask", "email=hmac,size=3"), 2, "'size'"),
            (("--mask", "born=truncate-date"), 2, "needs to="),
            (("--rename", "email=id"), 2, "'id'"),
            (("--expression", "x=nothing + 1"), 2, "'nothing'"),
            (("--cast", "amount=money"), 2, "'money'"),
        ),
    ],
)
def test_what_cannot_be_done_is_one_error_before_anything_is_written(
    source: str, tmp_path: Path, options: tuple[str, ...], status: int, words: str
) -> None:
    """It names the mistake, and no key."""
    dest = tmp_path / "out"
    text = command.error_of(
        "run", source, "--table", "persons", "--to", str(dest), *options, status=status, env=ENV
    )
    assert words in text
    assert CODED not in text
    assert not dest.exists() or not list(dest.glob("*.csv"))


def test_a_job_file_has_masks_for_each_route(source: str, tmp_path: Path) -> None:
    """As tables or lists; `check` shows the columns of each output, and no row is needed for it."""
    job = tmp_path / "job.toml"
    job.write_text(
        f"""
source = "{source}"
[[table]]
table = "persons"
where = "id < 30"
[[table.route]]
name = "tests"
to = "{tmp_path}/tests"
mask-key = {{ default = "env:A", other = "env:B" }}
output-columns = "id,token,card"
rename = {{ email = "token" }}
[table.route.mask]
email = {{ method = "tokenize", domain = "person", key = "other" }}
card = {{ method = "redact", value = "17" }}
[[table.route]]
name = "loader"
to = "{tmp_path}/loader"
format = "parquet"
cast = ["amount=double", "id=int64"]
constant = {{ batch = 7 }}
""",
        encoding="utf-8",
    )
    env = {"A": CODED, "B": base64.b64encode(bytes(32)).decode()}
    document = json.loads(command.run("check", str(job), "--json", env=env))
    shown = [
        {each["name"]: each["lossless"] for each in output["columns"]}
        for output in document["outputs"]
    ]
    assert shown[0] == {"id": True, "token": "masked", "card": "masked"}
    assert (shown[1]["id"], shown[1]["batch"]) == (True, "changed")
    command.run("run", str(job), env=env)
    found = lines(tmp_path / "tests")
    assert len({row["token"] for row in found}) == len(found) == 30
    assert {row["card"] for row in found} == {"17"}
    table = pq.read_table(tmp_path / "loader")
    assert [str(kind) for kind in table.schema.types] == (
        ["int64", "string", "date32[day]", "int64", "double", "string"]
    )
    assert set(table.column("batch").to_pylist()) == {"7"}


@pytest.mark.long(OTHER_ROUTES)
def test_a_column_that_is_only_looked_at_has_the_text_that_it_would_have(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """PostgreSQL makes other text itself; a value that says less than it is refused."""
    url = postgres.database("looked_at")
    postgres.run(
        "CREATE TABLE t (i int, n numeric(12,2), f float8, b bool, d date, ts timestamp, "
        "tz timestamptz, x bytea, c char(5), u uuid); INSERT INTO t SELECT g, g * 1.5, g / 7.0, "
        "g % 2 = 0, DATE '1969-12-30' + g, TIMESTAMP '1999-12-31 23:59:59' + g * INTERVAL "
        "'1.25 s', TIMESTAMPTZ '2001-02-03 04:05:06.789+02' + g * INTERVAL '1 h', "
        "decode(lpad(to_hex(g), 4, '0'), 'hex'), 'a' || g, gen_random_uuid() "
        "FROM generate_series(1, 50) g",
        url=url,
    )
    names = "i,n,f,b,d,ts,tz,x,c,u"
    looks = " || ".join(f"{name}::VARCHAR" for name in names.split(","))
    plain, other = tmp_path / "plain", tmp_path / "other"
    base = ("run", url, "--table", "t", "--split", "none")
    command.run(*base, "--to", str(plain))
    command.run(
        *(*base, "--to", str(other), "--expression", f"z={looks}", "--output-columns", names)
    )
    assert (plain / "t.0001.csv").read_bytes() == (other / "t.0001.csv").read_bytes()


@pytest.mark.long("memory and large rows")
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_large_value_passes_where_nothing_looks_at_it(
    postgres: PostgresServer, tmp_path: Path, form: str
) -> None:
    """It is renamed or redacted as any other; a mask that must look at it names the column."""
    url = postgres.database("large_masked")
    postgres.run(
        "CREATE TABLE w (id int, t text); "
        "INSERT INTO w VALUES (1, 'narrow'), (2, repeat('wide', 3000000)), (3, NULL)",
        url=url,
    )
    base = ("run", url, "--table", "w", "--format", form, "--fetch-memory", "1MiB")
    masked = ("--mask", "id=hmac", "--rename", "t=doc")
    command.run(*base, "--to", str(tmp_path / "a"), *masked, "--verify", "full", env=ENV)
    redacted = ("--mask", "t=redact,value=-")
    command.run(*base, "--to", str(tmp_path / "b"), *redacted, "--verify", "full", env=ENV)
    with duckdb.connect() as connection:
        connection.execute("SET VARIABLE wide = repeat('wide', 3000000)")
        sql = "SELECT id, {} FROM '{}' ORDER BY 1"
        kind = "*.csv" if form == "csv" else "*.parquet"
        wide = "CASE WHEN doc = getvariable('wide') THEN 'all' ELSE doc END"
        if form == "parquet":
            found = connection.execute(sql.format(wide, tmp_path / "a" / kind)).fetchall()
            assert dict(found) == {digest("1"): "narrow", digest("2"): "all", digest("3"): None}
        else:
            assert (tmp_path / "a" / "w.0001.csv").stat().st_size > 12_000_000
        found = connection.execute(sql.format("t", tmp_path / "b" / kind)).fetchall()
        assert found == [(1, "-"), (2, "-"), (3, "-")]
    text = command.error_of(
        *(*base, "--to", str(tmp_path / "c"), "--mask", "t=hmac"), status=6, env=ENV
    )
    assert "column t has a value that is too large" in text
    assert "wide" not in text


def test_an_order_that_a_mask_undoes_is_refused(source: str, tmp_path: Path) -> None:
    """One that begins with another column, or that a mask leaves, is checked as it is written."""
    order = ("--format", "parquet", "--sorted-by")
    query = ("--query", "SELECT * FROM persons ORDER BY id")
    line = ("run", source, *query, *order)
    masks = ("--mask", "email=hmac", "--mask", "born=truncate-date,to=year")
    to = ("--to", str(tmp_path / "out"))
    said = command.error_of(*line, "email", *to, *masks, status=2, env=ENV)
    assert "--sorted-by email: the column is masked by hmac" in said
    assert not (tmp_path / "out").exists()
    command.run(*line, "born,id,email", *to, *masks, env=ENV)
    (file,) = (tmp_path / "out").glob("*.parquet")
    found = pq.ParquetFile(file).metadata.row_group(0).sorting_columns
    assert [each.column_index for each in found] == [2, 0, 1]
    years = pq.read_table(file).column("born").to_pylist()
    assert years == sorted(years)
    unsorted = ("--to", str(tmp_path / "wrong"), "--mask", "amount=redact,value=1")
    said = command.error_of(*line, "amount,id desc", *unsorted, status=6, env=ENV)
    assert "row 2 is not after the row before it" in said
