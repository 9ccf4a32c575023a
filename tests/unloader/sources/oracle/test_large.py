"""LOBs of all sizes, documents, and the old LONG types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from oracle.runs import BOTH, CSV, PARQUET, Natives, Rows, Run, check, create
from oracle_server.database import Database
from oracle_server.faults import Fault
from oracle_server.model import Type
from oracle_server.server import OracleServer
from routes.runs import OneOutput

from unloader.errors import OutputFailed, SourceError
from unloader.model import Fetch
from unloader.sources.oracle.reader import PIECE_UNITS, OracleReader
from unloader.sources.oracle.statement import INLINE_UNITS
from writers.large_rows import LargeRow
from writers.model import TextFormat

LOBS: Natives = {
    "ID": ("NUMBER(9)", Type(name="NUMBER", precision=9, scale=0)),
    "C": ("CLOB", Type(name="CLOB")),
    "N": ("NCLOB", Type(name="NCLOB")),
    "B": ("BLOB", Type(name="BLOB")),
    "D": ("DATE", Type(name="DATE")),
}


@pytest.fixture(scope="module")
def server() -> Iterator[OracleServer]:
    """A server with the user SCOTT and no tables, where PUBLIC was denied DBMS_LOB."""
    database = Database()
    database.add_user("SCOTT", "tiger")
    database.privileges.revoke("SCOTT", "DBMS_LOB")
    with OracleServer(database) as running:
        yield running


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNLOADER_PASSWORD", "tiger")


def whole(items: list[pa.RecordBatch | LargeRow]) -> tuple[list[tuple[Any, ...]], int]:
    rows: list[tuple[Any, ...]] = []
    large = 0
    for item in items:
        if not isinstance(item, LargeRow):
            rows += zip(*(column.to_pylist() for column in item.columns), strict=True)
            continue
        values = [column[0].as_py() for column in item.row.columns]
        for index, value in item.values:
            assert values[index] is None
            pieces = list(value.pieces())
            values[index] = (b"" if value.binary else "").join(pieces)
        rows.append(tuple(values))
        large += 1
    return rows, large


def mixed(units: int) -> str:
    text = "aü€🦆" * (units // 5 + 1)
    return text.encode("utf-16-le")[: units // 5 * 10].decode("utf-16-le") + "z" * (units % 5)


@pytest.mark.parametrize("fetch", BOTH)
@pytest.mark.parametrize("rowids", [True, False], ids=["table", "view"])
def test_lobs_of_every_size_keep_their_place(
    server: OracleServer, fetch: Fetch, rowids: bool
) -> None:
    """NULL, empty, small and large LOBs come out whole, in the order of their rows."""
    edge = mixed(INLINE_UNITS)
    rows: Rows = [
        (1, "small", "ß", b"\x00\xff", None),
        (2, None, None, None, None),
        (3, "", "", b"", None),
        (4, edge, edge, edge.encode()[:INLINE_UNITS], None),
        (5, edge + "!", None, b"\xaa" * (INLINE_UNITS + 1), None),
        (6, None, edge + "🦆", None, None),
        (7, "after", "after", b"after", None),
        (8, mixed(100_000), mixed(70_000), bytes(range(256)) * 400, None),
    ]
    create(server, LOBS, rows)
    run = Run(server, LOBS, fetch=fetch, rowids=rowids)
    reader = OracleReader(run.spec, run.extract.snapshot)
    found, large = whole(run.items(reader, 1024 * 1024))
    reader.close()
    assert found == list(rows)
    assert large == 3


def test_pieces_never_cut_a_character(server: OracleServer) -> None:
    """A character that lies across two pieces comes with one of them, as a whole."""
    text = "x" + "🦆" * PIECE_UNITS
    create(server, LOBS, [(1, text, None, None, None)])
    run = Run(server, LOBS)
    reader = OracleReader(run.spec, run.extract.snapshot)
    (item,) = run.items(reader, 1024 * 1024)
    assert isinstance(item, LargeRow)
    ((_, value),) = item.values
    for _ in range(2):
        pieces = list(value.pieces())
        assert len(pieces) > 2
        assert "".join(pieces) == text
    reader.close()


class Digits:
    """A BLOB that is made when it is read."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.most = 0

    def read(self, offset: int, amount: int) -> bytes:
        """Return bytes that follow from where they lie."""
        self.most = max(self.most, amount)
        return bytes((offset + n) % 251 for n in range(min(amount, self.length - offset)))


def test_large_lobs_come_in_pieces(server: OracleServer) -> None:
    """No more of a LOB than a piece is asked for at a time."""
    made = Digits(3 * PIECE_UNITS + 7)
    create(server, LOBS, [(1, None, None, made, None)])
    run = Run(server, LOBS)
    reader = OracleReader(run.spec, run.extract.snapshot)
    (item,) = run.items(reader, 1024 * 1024)
    assert isinstance(item, LargeRow)
    ((index, value),) = item.values
    assert run.schema.field(index).name == "B"
    assert sum(len(piece) for piece in value.pieces()) == made.length
    assert made.most <= PIECE_UNITS
    reader.close()


def test_half_a_character_is_refused(server: OracleServer) -> None:
    """A CLOB with half of a surrogate pair in it is an error that names the column."""
    broken = "a" * (INLINE_UNITS * 2) + "\ud83e"
    create(server, LOBS, [(1, broken, None, None, None)])
    run = Run(server, LOBS)
    reader = OracleReader(run.spec, run.extract.snapshot)
    with pytest.raises(OutputFailed, match="column C holds half a character") as refused:
        whole(run.items(reader, 1024 * 1024))
    assert "--exclude C" in refused.value.hint
    reader.close()


def test_an_error_amid_a_lob_is_the_source_s(server: OracleServer) -> None:
    """An error of the database during the reading of a LOB is reported with its code."""
    create(server, LOBS, [(1, "x" * 100_000, None, None, None)])
    run = Run(server, LOBS)
    reader = OracleReader(run.spec, run.extract.snapshot)
    items = run.items(reader, 1024 * 1024)
    server.faults.add(Fault(kind="ora-22924", call="lob"))
    with pytest.raises(SourceError, match="ORA-22924"):
        whole(items)
    reader.close()


@pytest.mark.parametrize("fetch", BOTH)
def test_long_columns_come_whole(server: OracleServer, fetch: Fetch) -> None:
    """LONG and LONG RAW, one a table, come with their rows."""
    for name, value in (("LONG", "ü" * 50_000), ("LONG RAW", b"\x00\xff" * 50_000)):
        columns: Natives = {"ID": LOBS["ID"], "L": (name, Type(name=name))}
        rows = [(1, value), (2, None), (3, value[:3]), (4, value[:3])]
        create(server, columns, rows)
        check(Run(server, columns, fetch=fetch), columns, rows)


@pytest.mark.parametrize("fetch", BOTH)
def test_documents_are_text(server: OracleServer, fetch: Fetch) -> None:
    """XML, JSON and vectors are the text that the database makes of them; booleans stay."""
    columns: Natives = {
        "X": ("XMLTYPE", Type(name="XMLTYPE")),
        "J": ("JSON", Type(name="JSON")),
        "V": ("VECTOR(3, FLOAT32)", Type(name="VECTOR", length=3, element="FLOAT32")),
        "B": ("BOOLEAN", Type(name="BOOLEAN")),
    }
    rows: Rows = [
        ("<a>ü</a>", {"a": [1, None, "🦆"]}, (1.5, -2.0, 0.25), True),
        (None, None, None, None),
        ("<b/>", [], (0.0, 0.0, 0.0), False),
    ]
    create(server, columns, rows)
    for target in (CSV, PARQUET):
        table = Run(server, columns, fetch=fetch, target=target).table()
        assert table.column("X").to_pylist() == ["<a>ü</a>", None, "<b/>"]
        assert table.column("J").to_pylist() == ['{"a":[1,null,"🦆"]}', None, "[]"]
        assert table.column("V").to_pylist()[1] is None
        assert table.column("B").to_pylist() == [True, None, False]
    text = OneOutput(text=TextFormat(), as_text=("B",))
    table = Run(server, columns, fetch=fetch, target=text).table()
    assert table.column("B").to_pylist() == ["true", None, "false"]


@pytest.mark.parametrize("fetch", BOTH)
def test_blobs_as_text_are_digits(server: OracleServer, fetch: Fetch) -> None:
    """`--as-text` writes the bytes of a BLOB of any size in hexadecimal digits."""
    values = [b"\x01\xab", b"", None, bytes(range(256)) * 200]
    create(server, LOBS, [(n, None, None, value, None) for n, value in enumerate(values)])
    text = OneOutput(text=None, as_text=("B",))
    run = Run(server, LOBS, fetch=fetch, target=text)
    reader = OracleReader(run.spec, run.extract.snapshot)
    found, _ = whole(run.items(reader, 1024 * 1024))
    reader.close()
    assert [row[3] for row in found] == [None if v is None else v.hex() for v in values]
