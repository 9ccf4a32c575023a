"""Values that some route or dialect could write in another way, type by type, for each database.

A table has one column for each entry and as many rows as the longest list of literals; a shorter
list begins again. Each literal is in the database's own SQL.
"""

from __future__ import annotations

from collections.abc import Sequence

Column = tuple[str, str, Sequence[str]]
"""Name, type and literals."""

_CONTROLS = [chr(code) for code in (*range(1, 32), 127, 128, 133, 159, 0x2028, 0xFEFF, 0xFFFF)]
TEXTS = [
    *("", " ", "NULL", r"\N", r"\.", "\\", '"', '""', "'", ",", ";", "\t", "~~", "a~", "infinity"),
    *("say \"hi\", c\r\n", "two\nlines", "\r", "\n", "\r\n", "=1+1", "0", "-", "ü日本語🎉\U0010ffff"),
    *(f"a{control}b" for control in _CONTROLS),
    *_CONTROLS,
]  # fmt: skip
"""Every control character but NUL, alone and inside; the words of formats; ends of line."""

_DATES = (
    "infinity", "-infinity", "4713-01-01 BC", "0044-03-15 BC", "0001-12-31 BC", "0001-01-01",
    "1500-02-28", "1969-12-31", "2000-02-29", "9999-12-31", "10000-01-01", "12000-06-07",
    "5874897-12-31",
)  # fmt: skip
_TIMESTAMPS = (
    "infinity", "-infinity", "4713-11-24 00:00:00 BC", "0044-03-15 12:34:56.789 BC",
    "0001-12-31 23:59:59.999999 BC", "0001-01-01 00:00:00", "1582-10-10 10:10:10.1",
    "1969-12-31 23:59:59.999999", "2024-02-29 12:00:00", "9999-12-31 23:59:59.999999",
    "12000-01-01 00:00:00.000001", "294246-12-31 23:59:59.999999",
    "294247-01-10 04:00:54.775807", "294247-01-10 04:00:54.775808", "294276-12-31 23:59:59.999999",
)  # fmt: skip
_ZONED = (
    *(f"{text.removesuffix(' BC')}+00{' BC' * text.endswith(' BC')}" for text in _TIMESTAMPS[2:]),
    "infinity", "-infinity", "2024-03-31 02:30:00 Europe/Berlin", "1900-01-01 00:00:00+05:53:28",
)  # fmt: skip
_NUMBERS = (
    "NaN", "Infinity", "-Infinity", "0", "-0", "-0.000", "1.50", "100", "1e1000", "1e-1000",
    "-123456789012345678901234567890123456789012345678901234567890.5",
)  # fmt: skip
_FLOATS = (
    "NaN", "Infinity", "-Infinity", "0", "-0", "0.1", "1e-5", "0.0001", "1e6", "123456789.125",
    "9007199254740993", "1e10", "1e15", "1e16", "1e23", "5e-324", "1.7976931348623157e308",
)  # fmt: skip


def _quoted(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple("'" + text.replace("'", "''") + "'" for text in texts)


POSTGRES_TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'o,k', 'ha"ppy', '');
CREATE TYPE pair AS (a date, b text);
CREATE DOMAIN price AS numeric(10, 2);
CREATE DOMAIN dear AS price CHECK (value IS NULL OR value <> 7);
CREATE DOMAIN day AS date;
CREATE DOMAIN seen AS timestamptz;
CREATE DOMAIN flag AS boolean;
CREATE DOMAIN raw AS bytea;
CREATE DOMAIN cash AS money;
CREATE DOMAIN code AS char(3);
"""

POSTGRES: tuple[Column, ...] = (
    ("txt", "text", _quoted(TEXTS)),
    ("d", "date", _quoted(_DATES)),
    ("ts", "timestamp", _quoted(_TIMESTAMPS)),
    ("ts3", "timestamp(3)", _quoted(_TIMESTAMPS[:12])),
    ("ts0", "timestamp(0)", _quoted(_TIMESTAMPS[:9])),
    ("tz", "timestamptz", _quoted(_ZONED)),
    ("tz3", "timestamptz(3)", _quoted(_ZONED[:10])),
    ("day", "day", _quoted(_DATES)),
    ("seen", "seen", _quoted(_ZONED)),
    ("n", "numeric", _quoted(_NUMBERS)),
    ("n38", "numeric(38,10)", _quoted(("NaN", "0", "-0.0000000001", "9" * 28 + ".9999999999"))),
    ("n5", "numeric(5,2)", _quoted(("NaN", "-0.01", "999.99", "-0"))),
    ("n1", "numeric(1,0)", _quoted(("NaN", "-9", "0"))),
    ("n9", "numeric(9,9)", _quoted(("NaN", "-0.000000001", "0"))),
    ("rounded", "numeric(5,-2)", _quoted(("NaN", "12300", "-49"))),
    ("tiny", "numeric(3,5)", _quoted(("NaN", "0.00123", "-0.00001"))),
    ("wide", "numeric(100,50)", _quoted(("NaN", "9" * 50 + "." + "9" * 50, "-1"))),
    ("price", "price", _quoted(("NaN", "1.5", "-0.01"))),
    ("dear", "dear", _quoted(("NaN", "1.5"))),
    ("i2", "smallint", _quoted(("-32768", "32767"))),
    ("i4", "integer", _quoted(("-2147483648", "2147483647"))),
    ("i8", "bigint", _quoted(("-9223372036854775808", "9223372036854775807"))),
    ("o", "oid", _quoted(("0", "4294967295"))),
    ("cash", "money", _quoted(("-92233720368547758.08", "1234.5", "0"))),
    ("dcash", "cash", _quoted(("-0.01", "1234567.5"))),
    ("f4", "real", _quoted((*_FLOATS[:-2], "1e-45", "3.4028235e38", "16777216"))),
    ("f8", "double precision", _quoted(_FLOATS)),
    ("b", "boolean", ("true", "false")),
    ("flag", "flag", ("true", "false")),
    ("t", "time", _quoted(("24:00:00", "00:00:00", "23:59:59.999999", "12:00:00.5"))),
    ("t3", "time(3)", _quoted(("24:00:00", "23:59:59.999"))),
    ("ttz", "timetz", _quoted(("24:00:00+15:59", "00:00:00-15:59:59", "12:00:00.1+00"))),
    ("iv", "interval", _quoted(("infinity", "-infinity", "-178000000 years", "0",
        "1 year 2 mons -3 days 04:05:06.789", "-00:00:00.000001"))),
    ("iy", "interval year to month", _quoted(("-1 mon", "infinity"))),
    ("c", "char(4)", _quoted(("", "ab", "x   ", " y", "日本", '"'))),
    ("code", "code", _quoted(("", "ab"))),
    ("v", "varchar(9)", _quoted(("", "  ", "ab ", "a,b"))),
    ("ch", '"char"', _quoted(("", "x", r"\377", ","))),
    ("nm", "name", _quoted(("", "select"))),
    ("by", "bytea", _quoted((r"\x", r"\x00ff", r"\x5c782c220d0a"))),
    ("raw", "raw", _quoted((r"\x", r"\x00ff"))),
    ("j", "json", _quoted(('{"a": 1.10,  "a": 2}', "null", '"\\u0000\\ud83d"', '[\n1,\t"ü"\n]'))),
    ("jb", "jsonb", _quoted(('{"k": [1, 2.50, "ü,\\""]}', "null", "1e1000", '""'))),
    ("u", "uuid", _quoted(("00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"))),
    ("ia", "integer[]", _quoted(("{}", "{1,NULL,-3}", "{{1,2},{3,4}}", "[0:1]={5,6}"))),
    ("ta", "text[]", _quoted(("{}", '{"a,b","say \\"x\\"",NULL,"NULL",""}'))),
    ("da", "date[]", _quoted(('{infinity,"0044-03-15 BC",12000-01-01}',))),
    ("za", "timestamptz[]", _quoted(('{infinity,"0044-03-15 12:00:00+00 BC"}',))),
    ("na", "numeric[]", _quoted(("{NaN,Infinity,-0.00}",))),
    ("ba", "bytea[]", _quoted(('{"\\\\x00ff","\\\\x"}',))),
    ("fa", "double precision[]", _quoted(("{NaN,-Infinity,-0,1e23}",))),
    ("p", "pair", ("ROW(NULL, NULL)", "ROW('infinity', 'q\"q')", "ROW('0044-03-15 BC', '')")),
    ("mood", "mood", _quoted(("sad", "o,k", 'ha"ppy', ""))),
    ("r4", "int4range", _quoted(("[1,5)", "empty", "(,7)", "(,)"))),
    ("rd", "daterange", _quoted(("[0044-03-15 BC,infinity]", "(-infinity,12000-01-01)"))),
    ("rz", "tstzrange", _quoted(('["0044-03-15 12:00:00+00 BC",infinity]', "empty"))),
    ("rn", "nummultirange", _quoted(("{}", "{[-0.5,1.50),(2,)}"))),
    ("bit", "bit(3)", _quoted(("101", "000"))),
    ("vb", "varbit", _quoted(("", "0101"))),
    ("ip", "inet", _quoted(("192.168.0.1/24", "::1", "::ffff:1.2.3.4/128"))),
    ("net", "cidr", _quoted(("10.0.0.0/8", "::/0"))),
    ("mac", "macaddr8", _quoted(("08:00:2b:01:02:03:04:05",))),
    ("pt", "point", _quoted(("(1,-0)", "(NaN,Infinity)"))),
    ("box", "box", _quoted(("((1,2),(3,4))",))),
    ("tsv", "tsvector", _quoted(("'a,b':1 'it''s':2A", ""))),
    ("jp", "jsonpath", _quoted(('$."a b"[*] ? (@ > 1)',))),
    ("lsn", "pg_lsn", _quoted(("FFFFFFFF/FFFFFFFF", "0/0"))),
    ("xid", "xid8", _quoted(("18446744073709551615",))),
    ("reg", "regclass", ("'pg_class'::regclass", "0::oid::regclass")),
    ("ov", "oidvector", _quoted(("1 2", ""))),
)  # fmt: skip

DUCKDB: tuple[Column, ...] = (
    ("txt", "VARCHAR", _quoted(TEXTS)),
    ("d", "DATE", _quoted(("infinity", "-infinity", "0044-03-15 (BC)", "12000-06-07",
        "5877642-06-25 (BC)", "5881580-07-10", "1969-12-31"))),
    ("ts", "TIMESTAMP", _quoted(("infinity", "-infinity", "0044-03-15 (BC) 12:34:56.789",
        "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806", "1969-12-31 23:59:59.5"))),
    ("ss", "TIMESTAMP_S", _quoted(("infinity", "0044-03-15 (BC) 12:34:56", "12000-01-01 00:00:00"))),
    ("ms", "TIMESTAMP_MS", _quoted(("-infinity", "0044-03-15 (BC) 12:34:56.7", "2024-01-01"))),
    ("ns", "TIMESTAMP_NS", _quoted(("infinity", "-infinity", "1677-09-22 00:00:00.000000001",
        "2262-04-11 23:47:16.854775806", "2024-01-01 00:00:00.5"))),
    ("tz", "TIMESTAMPTZ", _quoted(("infinity", "-infinity", "0044-03-15 (BC) 12:34:56.789+00",
        "12000-01-01 00:00:00+00", "2024-03-31 02:30:00+05:30"))),
    ("t", "TIME", _quoted(("24:00:00", "00:00:00", "23:59:59.999999"))),
    ("ttz", "TIMETZ", _quoted(("24:00:00+15:59:59", "00:00:00-15:59"))),
    ("iv", "INTERVAL", _quoted(("1 year -2 days 03:00:00.000001", "-1 month", "0 days"))),
    ("n38", "DECIMAL(38,10)", _quoted(("9" * 28 + ".9999999999", "-0.0000000001", "0"))),
    ("n5", "DECIMAL(5,2)", _quoted(("-0.01", "999.99"))),
    ("huge", "HUGEINT", _quoted((str(-(2**127)), str(2**127 - 1)))),
    ("uhuge", "UHUGEINT", _quoted((str(2**128 - 1),))),
    ("big", "BIGNUM", _quoted(("1" + "0" * 60, "-7"))),
    ("i1", "TINYINT", _quoted(("-128", "127"))),
    ("u8", "UBIGINT", _quoted(("18446744073709551615", "0"))),
    ("f4", "FLOAT", _quoted(("NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "1e6"))),
    ("f8", "DOUBLE", _quoted(_FLOATS)),
    ("b", "BOOLEAN", ("true", "false")),
    ("raw", "BLOB", _quoted((r"", r"\x00\xFF", r"a,\x22\x0D\x0A"))),
    ("u", "UUID", _quoted(("00000000-0000-0000-0000-000000000001",))),
    ("bits", "BIT", _quoted(("0101", "1"))),
    ("en", "ENUM('sad', 'o,k', '')", _quoted(("sad", "o,k", ""))),
    ("j", "JSON", _quoted(('{"a": 1.10,  "a": 2}', "null", "[\n1]"))),
    ("li", "INTEGER[]", ("[]", "[1, NULL, -3]")),
    ("ld", "DATE[]", ("['infinity', '0044-03-15 (BC)', NULL]",)),
    ("st", "STRUCT(a VARCHAR, b INTEGER)", ("{'a': 'x,\"y', 'b': NULL}", "{'a': NULL, 'b': 1}")),
    ("mp", "MAP(VARCHAR, INTEGER)", ("MAP {'k,\"': 1}", "MAP {}")),
    ("un", "UNION(n INTEGER, s VARCHAR)", ("1", "'x,y'")),
)  # fmt: skip

SQLITE: tuple[Column, ...] = (
    ("txt", "TEXT", _quoted(TEXTS)),
    ("i", "INTEGER", ("-9223372036854775808", "9223372036854775807", "0")),
    ("r", "REAL", ("9e999", "-9e999", "-0.0", "0.1", "1e10", "1e15", "1e16", "1e23", "5e-324", "1e-5")),
    ("mixed", "", ("1e10", "1e16", "1e23", "-0.0", "9e999", "'0044-03-15 BC'", "7", "'ü,\"'", "''", "1e-5")),
    ("d", "DATE", ("'infinity'", "'0044-03-15 BC'", "'12000-01-01'", "20240131", "2460341.5")),
    ("n", "NUMERIC(10,2)", ("1.5", "10000000000.0", "'NaN'", "-0.0", "12345678901234567890")),
    ("bl", "BLOB", ("x''", "x'00ff2c220d0a'")),
)  # fmt: skip


def inserted(columns: Sequence[Column], table: str, *, cast: bool) -> str:
    """Return SQL that fills a table: an id, NULL everywhere in row 0, then the literals in turn."""
    rows = [("0", *("NULL" for _ in columns))]
    for number in range(max(len(literals) for _, _, literals in columns)):
        values = (
            f"CAST({literal} AS {kind})" if cast and literal.startswith("'") else literal
            for literal, kind in ((each[2][number % len(each[2])], each[1]) for each in columns)
        )
        rows.append((str(number + 1), *values))
    lines = ",\n".join(f"({', '.join(row)})" for row in rows)
    return f"INSERT INTO {table} VALUES {lines};"


def created(columns: Sequence[Column], table: str) -> str:
    """Return SQL that makes the table of `inserted`."""
    return (
        f"CREATE TABLE {table} (id INTEGER, {', '.join(f'{n} {kind}' for n, kind, _ in columns)});"
    )
