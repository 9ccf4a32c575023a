"""A PostgreSQL table full of values that other tools have written wrong."""

SCHEMA = "Hostile Schema"
TABLE = "select"
NAME = f'"{SCHEMA}"."{TABLE}"'

INFINITE = ("n38", "d", "ts", "ts3", "tstz")
"""Columns with values that no Parquet type of theirs can hold."""

TYPES = """
CREATE SCHEMA "Hostile Schema";
CREATE TYPE "Hostile Schema".mood AS ENUM ('sad', 'o,k', 'ha"ppy');
CREATE TYPE "Hostile Schema".pair AS (a integer, b text);
CREATE DOMAIN "Hostile Schema".price AS numeric(10, 2);
"""

COLUMNS = '''
  id bigint NOT NULL,
  "Key" varchar(40) NOT NULL,
  "Mixed ""Case""" text,
  "comma,name" varchar(200),
  c8 char(8),
  n38 numeric(38, 10),
  nfree numeric,
  i2 smallint, i4 integer,
  f4 real, f8 double precision,
  b boolean,
  d date, ts timestamp, ts3 timestamp(3), tstz timestamptz,
  iv interval, t time, ttz timetz,
  by bytea,
  ia integer[], ta text[],
  j json, jb jsonb,
  u uuid,
  dom "Hostile Schema".price, en "Hostile Schema".mood, comp "Hostile Schema".pair,
  rng int4range, ip inet, bits bit varying(9)
'''

GENERATED = ", gen bigint GENERATED ALWAYS AS (id * 2) STORED"


def create(rows: int, partitions: int = 32) -> str:
    """Return SQL that builds the table with that many rows and hash partitions."""
    leaves = "".join(
        f'CREATE TABLE "Hostile Schema"."select_{number}" PARTITION OF {NAME} '
        f"FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number});\n"
        for number in range(partitions)
    )
    return f"""
{TYPES}
CREATE TABLE {NAME} ({COLUMNS} {GENERATED}) PARTITION BY HASH ("Key");
{leaves}
{_INSERT.replace("ROWS", str(rows))}
ANALYZE {NAME};
"""


# Each column takes its values in turn from a list; list lengths share no factor, so that all
# pairs of neighbours come up.
_INSERT = r"""
INSERT INTO "Hostile Schema"."select" SELECT g,
  'k' || g,
  (ARRAY['', 'NULL', '\N', '\.', NULL, ' lead and trail ', 'a,b', 'say "hi"', E'two\nlines',
    E'cr\rhere', E'crlf\r\nend', E'tab\there', '""', '"', ',', E'\n', E'bell\x07 esc\x1b del\x7f',
    '日本語 ünïcödé', '𝄞🎉 four bytes', E'nel\u0085 ls\u2028', 'back\slash', '~~', 'plain'])[1 + g % 23],
  (ARRAY['x', NULL, '', E'\\x41', E'mixed "q", c\r\n', repeat('é', 150), '0'])[1 + g % 7],
  (ARRAY['', 'ab', NULL, 'ü', 'x       ', '  lead'])[1 + g % 6],
  (ARRAY['0', '-0', '1234567890123456789012345678.0123456789', '-9999999999999999999999999999.9999999999',
    '0.0000000001', NULL, 'NaN', '42'])[1 + g % 8]::numeric(38, 10),
  (ARRAY['0.12345678901234567890123456789012345678', '1e-130', '9.99e125', '-1e-30', 'NaN', NULL, 'Infinity',
    '-Infinity', '123456789012345678901234567890123456789012345', '1.50', '0', '100'])[1 + g % 12]::numeric,
  (ARRAY[-32768, 32767, 0, NULL])[1 + g % 4]::smallint, (ARRAY[-2147483648, 2147483647, NULL, 7])[1 + g / 4 % 4],
  (ARRAY['0', '-0', '1e-45', '3.4028235e38', 'NaN', 'Infinity', '-Infinity', '0.1', NULL, '16777216'])[1 + g % 10]::real,
  (ARRAY['0', '-0', '5e-324', '1.7976931348623157e308', 'NaN', 'Infinity', '-Infinity', '0.1', NULL, '9007199254740993',
    '1e15', '1e16', '123456789.125'])[1 + g % 13]::double precision,
  (ARRAY[true, false, NULL])[1 + g % 3],
  (ARRAY['0001-01-01', '1582-10-04', '1582-10-15', '1969-12-31', '3844-11-27', '9999-12-31', 'infinity', '-infinity',
    NULL, '0044-03-15 BC', '2000-02-29'])[1 + g % 11]::date,
  (ARRAY['0001-01-01 00:00:00', '1582-10-10 10:10:10.1', '1969-12-31 23:59:59.999999', '3844-11-27 03:57:31',
    '9999-12-31 23:59:59.999999', 'infinity', '-infinity', NULL, '2024-02-29 12:00:00.000001'])[1 + g % 9]::timestamp,
  (ARRAY['2262-04-12 00:00:00.123', '1677-09-20 00:00:00', 'infinity', NULL, '0001-01-01 00:00:00.5'])[1 + g % 5]::timestamp(3),
  (ARRAY['2024-03-31 02:30:00 Europe/Berlin', '1969-12-31 23:59:59.5 America/New_York', '3844-11-27 03:57:31 -05:30',
    '0001-01-02 00:00:00+14', '9999-12-30 00:00:00-12', 'infinity', NULL, '1900-01-01 00:00:00 Asia/Kolkata'])[1 + g % 8]::timestamptz,
  (ARRAY['1 year 2 mons -3 days 04:05:06.789', '-1 mon', '00:00:00', NULL, '178000000 years', '-00:00:00.000001'])[1 + g % 6]::interval,
  (ARRAY['00:00:00', '24:00:00', '23:59:59.999999', NULL])[1 + g % 4]::time,
  (ARRAY['12:00:00+05:30', '00:00:00-12', NULL])[1 + g % 3]::timetz,
  (ARRAY['\x', '\x00', '\x5c78', NULL, '\xdeadbeef', '\x2c220a0d'])[1 + g % 6]::bytea,
  (ARRAY['{}', '{1,NULL,-3}', NULL, '{{1,2},{3,4}}'])[1 + g % 4]::integer[],
  (ARRAY['{}', '{"a,b","say \"x\"",NULL,"NULL",""}', NULL])[1 + g % 3]::text[],
  (ARRAY['{"a": 1.10,  "a": 2}', 'null', NULL, '"x\ny"'])[1 + g % 4]::json,
  (ARRAY['{"k": [1, 2.50, "ü"]}', '[]', NULL, '12345678901234567890.123'])[1 + g % 4]::jsonb,
  CASE WHEN g % 5 > 0 THEN md5(g::text)::uuid END,
  (ARRAY[NULL, 12345678.90, -0.01])[1 + g % 3],
  (ARRAY['sad', 'o,k', 'ha"ppy', NULL])[1 + g % 4]::"Hostile Schema".mood,
  (ARRAY['(1,"x,y")', '(,)', NULL, '(2,"q""q")'])[1 + g % 4]::"Hostile Schema".pair,
  (ARRAY['[1,5)', 'empty', NULL, '(,7)'])[1 + g % 4]::int4range,
  (ARRAY['192.168.0.1/24', '::1', NULL])[1 + g % 3]::inet,
  (ARRAY['101', '', NULL])[1 + g % 3]::varbit
FROM generate_series(1, ROWS) AS s(g);
"""
