"""One rule for text: the same values and the same text of each, for every route and dialect.

Tables of values that are hard to write, type by type, go through all routes: text that the database
renders, the plain encoder and the native one, in every dialect. Other programs read the output
back, and find the database's own text.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
import zstandard
from long_tests import OTHER_ROUTES, also
from processes import command
from routes import runs as route_runs
from routes import values as route_values
from routes.runs import Rows, asked_rows, copied_rows, csv_rows, sqlldr_rows
from routes.values import DUCKDB, POSTGRES, SQLITE

ROUTES = "ways that texts take"
"""The kind of the long tests."""

NAMES = tuple(name for name, _, _ in POSTGRES)
MOMENTS = ("d", "ts", "ts3", "ts0", "tz", "tz3", "day", "seen")
"""Columns that follow a mask where a dialect has one."""
BATCHES = ("--file-size", "1TiB")
"""A run that cuts files by size reads batches, even where the database could render the text."""


def unloaded(url: str, to: Path, *options: str) -> list[Path]:
    """Unload the table and return the files."""
    command.run(
        *("run", url, "--table", "routes", "--to", str(to), "--quiet", "--parallelism", "1"),
        *options,
    )
    return sorted(file for file in to.iterdir() if file.name[0] != "_")


def rendered(name: str, kind: str) -> str:
    base = {"flag": "boolean", "seen": "timestamptz", "cash": "money"}.get(kind, kind)
    text = f"format('%s', {name})"  # unlike a cast it keeps the blanks of char(n)
    if base == "boolean":
        text = f"CASE WHEN {name} THEN 'true' ELSE 'false' END"
    if base in ("timestamptz", "timestamptz(3)"):
        text = rf"regexp_replace({name}::text, '\+00', '+00:00')"
    if base == "money":
        text = f"{name}::numeric::text"
    return f"CASE WHEN {name} IS DISTINCT FROM NULL THEN {text} END AS {name}"


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    """A PostgreSQL database with the table."""
    found: str = postgres.database("routes")
    postgres.run(
        route_values.POSTGRES_TYPES
        + route_values.created(POSTGRES, "routes")
        + route_values.inserted(POSTGRES, "routes", cast=True),
        url=found,
    )
    return found


@pytest.fixture(scope="module")
def server_rows(postgres: Any, url: str) -> Rows:
    """What PostgreSQL itself shows of the table."""
    shown = ", ".join(rendered(name, kind) for name, kind, _ in POSTGRES)
    return asked_rows(postgres, url, f"SELECT id, {shown} FROM routes", NAMES)


def without_nulls(rows: Rows) -> Rows:
    """Return the rows as readers see them that know no NULL."""
    return {key: tuple(text or "" for text in row) for key, row in rows.items()}


CSV_ROUTES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "rfc4180": ((), {}),
    "plain": (("--encoder", "plain", *BATCHES), {}),
    "native": (("--encoder", "native", *BATCHES), {}),
    "crlf": (("--eol", "crlf"), {}),
    "pieces": (("--file-size", "20kB", "--enclose", "all"), {}),
    "excel": (("--dialect", "excel", "--as-text", "*"), {"encoding": "utf-8-sig"}),
    "utf-16": (("--encoding", "utf-16", "--enclose", "strings"), {"encoding": "utf-16"}),
    "backslash": (
        ("--enclose", "strings", "--escape", "backslash"),
        {"escapechar": "\\", "doublequote": False},
    ),
}


@pytest.mark.parametrize(
    "route",
    [
        *("rfc4180", "plain", "native"),
        *also(ROUTES, "backslash", "crlf", "pieces", "excel", "utf-16"),
    ],
)
def test_postgres_csv_is_the_servers_text(
    url: str, server_rows: Rows, tmp_path: Path, route: str
) -> None:
    """Every type's values, infinite and far ones too, have the server's text in every route."""
    options, form = CSV_ROUTES[route]
    files = unloaded(url, tmp_path / "out", *options)
    assert (len(files) > 1) == (route == "pieces")
    assert csv_rows(files, **form) == without_nulls(server_rows)


@pytest.mark.parametrize(
    ("dialect", "options"),
    [("postgres", "format csv"), ("tsv", "format text, header true"), ("rfc4180", "format csv, header true")],
)  # fmt: skip
def test_postgres_loads_its_own_text_back(
    postgres: Any, url: str, server_rows: Rows, tmp_path: Path, dialect: str, options: str
) -> None:
    """COPY reads the same texts, NULL apart from the empty one, from rendered and encoded files."""
    files = unloaded(url, tmp_path / "out", "--dialect", dialect, "--compression", "zstd")
    back = []
    for file in files:
        back.append(file.with_suffix(""))
        with file.open("rb") as packed, back[-1].open("wb") as plain:
            zstandard.ZstdDecompressor().copy_stream(packed, plain)
    assert copied_rows(postgres, url, back, NAMES, options) == server_rows


def test_postgres_records_for_sqlldr(url: str, server_rows: Rows, tmp_path: Path) -> None:
    """SQL*Loader's rules find the same texts where no mask applies."""
    # The dialect refuses a value whose end meets the enclosure; see docs/dialects.md.
    kept = {key: row for key, row in server_rows.items() if row[0] != "a~"}
    files = unloaded(
        *(url, tmp_path / "out", "--dialect", "sqlldr-var", "--as-text", ",".join(MOMENTS)),
        *("--where", "txt IS DISTINCT FROM 'a~'"),
    )
    assert sqlldr_rows(files, len(NAMES)) == kept


def test_postgres_fields_of_fixed_width(url: str, server_rows: Rows, tmp_path: Path) -> None:
    """Fields of fixed width hold the same texts, if they fit between blanks."""
    left_out = ("txt", "v")
    columns = [name for name in NAMES if name not in left_out]
    widths = ",".join(f"{name}=1100" for name in columns)
    (file,) = unloaded(
        url, tmp_path / "out", "--fixed", "--width", widths, "--exclude", ",".join(left_out),
        "--null", "<null>",
    )  # fmt: skip
    layout = command.manifest_of(tmp_path / "out")["columns"]
    assert [column["name"] for column in layout] == ["id", *columns]
    length = layout[-1]["position"][1] + 1
    data = file.read_bytes()
    found: dict[int, list[str]] = {}
    for start in range(0, len(data), length):
        record = data[start : start + length]
        fields = [
            record[first - 1 : last].decode() for first, last in (c["position"] for c in layout)
        ]
        found[int(fields[0])] = [field.strip(" ") for field in fields[1:]]
    kept = [index for index, name in enumerate(NAMES) if name in columns]
    assert found == {
        key: ["<null>" if row[i] is None else str(row[i]).strip(" ") for i in kept]
        for key, row in server_rows.items()
    }


def bits(text: str | None) -> object:
    """Return what two texts of the same floating-point number have in common."""
    return struct.pack("<d", float(text)) if text else text


def iso(text: str | None, *, zoned: bool = False) -> str | None:
    """Return DuckDB's text of a date or timestamp as docs/types.md says it is written."""
    if text is None:
        return None
    if zoned:
        text = text.replace("+00", "+00:00")
    return text.replace(" (BC)", "") + " BC" if " (BC)" in text else text


DUCKDB_FORMS: dict[str, tuple[str, Callable[[str | None], object]]] = {
    **dict.fromkeys(("d", "ts", "ss", "ms", "ns"), ("CAST({} AS VARCHAR)", iso)),
    "tz": ("CAST({} AS VARCHAR)", lambda text: iso(text, zoned=True)),
    **dict.fromkeys(("f4", "f8"), ("CAST({} AS VARCHAR)", bits)),
    "raw": ("'\\x' || lower(hex({}))", lambda text: text),
    **dict.fromkeys(("li", "st", "mp"), ("CAST(to_json({}) AS VARCHAR)", lambda text: text)),
}
"""SQL for the text of a column, and its compared part; others are cast and compared whole."""
FILE_ROUTES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "native": (("--encoder", "native"), {}),
    "plain": (("--encoder", "plain", "--eol", "crlf"), {}),
    "backslash": (
        ("--enclose", "strings", "--escape", "backslash"),
        {"escapechar": "\\", "doublequote": False},
    ),
    "excel": (
        ("--dialect", "excel", "--encoder", "plain", "--enclose", "strings", "--file-size", "1TiB"),
        {"encoding": "utf-8-sig"},
    ),
}


@pytest.fixture(scope="module")
def duckdb_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DuckDB file with the table."""
    path = tmp_path_factory.mktemp("routes") / "routes.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(route_values.created(DUCKDB, "routes"))
        connection.execute(route_values.inserted(DUCKDB, "routes", cast=True))
    return path


@pytest.mark.long(OTHER_ROUTES)
def test_duckdb_text_is_the_same_in_every_route(duckdb_file: Path, tmp_path: Path) -> None:
    """Every type's values, infinite ones too, have DuckDB's text, and the same in every route."""
    forms = [DUCKDB_FORMS.get(name, ("CAST({} AS VARCHAR)", str)) for name, _, _ in DUCKDB]
    shown = ", ".join(
        sql.format(name) for (name, _, _), (sql, _) in zip(DUCKDB, forms, strict=True)
    )
    with duckdb.connect(str(duckdb_file), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(f"SELECT id, {shown} FROM routes").fetchall()
    expected = {
        row[0]: [form(text) if text is not None else "" for text, (_, form) in zip(row[1:], forms, strict=True)]
        for row in rows
    }  # fmt: skip
    texts = []
    for route, (options, form) in FILE_ROUTES.items():
        files = unloaded(f"duckdb://{duckdb_file}", tmp_path / route, *options)
        texts.append(csv_rows(files, **form))
        assert texts[-1] == texts[0], route
    found = {
        key: [
            bits(text) if name in ("f4", "f8") else text
            for text, (name, _, _) in zip(row, DUCKDB, strict=True)
        ]
        for key, row in texts[0].items()
    }
    assert found == expected


@pytest.mark.long(OTHER_ROUTES)
def test_sqlite_text_is_the_same_in_every_route(tmp_path: Path) -> None:
    """Values of every storage class have one text, in typed columns and in untyped ones."""
    path = tmp_path / "routes.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            route_values.created(SQLITE, "routes")
            + route_values.inserted(SQLITE, "routes", cast=False)
        )
        expected = {row[0]: row[1:] for row in connection.execute("SELECT * FROM routes")}
    texts = []
    for route, (options, form) in FILE_ROUTES.items():
        files = unloaded(f"sqlite://{path}", tmp_path / route, *options)
        texts.append(csv_rows(files, **form))
        assert texts[-1] == texts[0], route
    words: dict[bytes, set[str]] = {}
    for key, row in expected.items():
        for value, text in zip(row, texts[0][key], strict=True):
            if isinstance(value, float):
                words.setdefault(struct.pack("<d", value), set()).add(str(text))
            elif isinstance(value, bytes):
                assert text == "\\x" + value.hex()
            else:
                assert text == ("" if value is None else str(value))
    assert all(bits(min(found)) == packed and len(found) == 1 for packed, found in words.items())


MASK = "DD.MM.YYYY"
FAR = {"infinity": "infin", "BC": "44 BC", "far": "12000"}
"""Values that such a mask cannot show, and a word of the refusal."""


def literal(database: str, kind: str, value: str) -> str:
    """Return SQL for a date or timestamp far from ours."""
    day = {"infinity": "infinity", "far": "12000-01-01"}.get(value)
    if day is None:
        day = "0044-03-15 BC" if database == "postgresql" else "0044-03-15 (BC)"
    return f"CAST('{day}' AS {kind})"


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(("TIMESTAMPTZ", value) for value in FAR),
        *also(ROUTES, *((kind, value) for kind in ("DATE", "TIMESTAMP") for value in FAR)),
    ],
)
def test_a_mask_refuses_what_it_cannot_show(
    url: str, duckdb_file: Path, kind: str, value: str
) -> None:
    """The refusal is the same in every dialect and encoder, and `--as-text` writes the value."""
    for found in (url, f"duckdb://{duckdb_file}"):
        query = f"SELECT {literal(found.partition(':')[0], kind, value)} AS c"
        refusals = {
            route_runs.refusal(found, query, dialect, MASK, encoder)
            for dialect in ("rfc4180", "sqlldr-var")
            for encoder in ("plain", "native")
        }
        (refused,) = refusals
        assert FAR[value] in refused
        assert "column c" in refused
        assert "--as-text c" in refused
        assert ("SYYYY" in refused) == (value == "BC")
        exact = {
            route_runs.written(found, query, "rfc4180", MASK, encoder, as_text=("c",))
            for encoder in ("plain", "native")
        }
        (text,) = exact
        assert text.startswith({"BC": "0044-03-15"}.get(value, FAR[value]))


@pytest.mark.parametrize("kind", ["DATE", *also(ROUTES, "TIMESTAMP", "TIMESTAMPTZ")])
def test_a_mask_with_a_sign_shows_years_before_christ(
    url: str, duckdb_file: Path, kind: str
) -> None:
    """Values that fit the mask are written the same from both databases and by both encoders."""
    written = {
        route_runs.written(
            found, f"SELECT {literal(name, kind, 'BC')} AS c", "rfc4180", "SYYYY-MM-DD", encoder
        )
        for name, found in (("postgresql", url), ("duckdb", f"duckdb://{duckdb_file}"))
        for encoder in ("plain", "native")
    }
    assert written == {"-0044-03-15"}


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", *also(ROUTES, "TIMESTAMPTZ")])
def test_parquet_refuses_only_what_its_types_cannot_hold(
    url: str, duckdb_file: Path, kind: str
) -> None:
    """Infinity is refused with `--as-text` as the way out; far years are held, by both databases."""
    for found in (url, f"duckdb://{duckdb_file}"):
        name = found.partition(":")[0]
        refused = route_runs.parquet(found, f"SELECT {literal(name, kind, 'infinity')} AS c")
        assert "column c" in str(refused)
        assert "--as-text c" in str(refused)
        ticks = [
            route_runs.parquet(found, f"SELECT {literal(name, kind, value)} AS c")
            for value in ("BC", "far")
        ]
        day = 1 if kind == "DATE" else 86_400 * 10**6
        assert ticks == [-735_160 * day, 3_663_382 * day]
