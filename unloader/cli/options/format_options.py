"""The options on output files: format, compression, names, and the layout of each format."""

from __future__ import annotations

import click

from unloader.cli.options import option_types as types
from unloader.cli.options.option import Bundle, flatten, option_section
from unloader.request.file_names import DEFAULT_TEMPLATE

DIALECTS = ("rfc4180", "tsv", "excel", "mysql", "postgres", "sqlldr-var")
"""Those of `writers.text.dialects`, repeated so that a help page need not import it."""

BY_DIALECT = "by dialect"

_output = option_section("Output")
_text = option_section("Delimited text")
_parquet = option_section("Parquet")

output_format = Bundle(
    _output(
        "--format",
        type=click.Choice(["csv", "parquet"]),
        default="csv",
        help="Format of the output files.",
    ),
    _output(
        "--compression",
        type=types.COMPRESSION,
        show_default="none for csv, zstd for parquet",
        help="Codec none, gzip, zstd, lz4 or snappy (Parquet only), with a level if it has one; or "
        "fastest, balanced or smallest, which measure a sample of the rows and choose.",
    ),
    _output(
        "--file-size",
        type=types.SIZE,
        default="0",
        help="Start a new file after so many bytes (64MiB, 1GB). 0 is never.",
    ),
    _output(
        "--file-per",
        type=click.Choice(["unit", "table"]),
        default="unit",
        help="One file for each work unit, or one for the table.",
    ),
    _output(
        "--file-name",
        metavar="TEMPLATE",
        show_default=DEFAULT_TEMPLATE,
        help="Names of the files, from {schema} {table} {partition} {unit} {part} {ext} {date}.",
    ),
    _output(
        "--checksum",
        type=click.Choice(["xxh3", "crc32c", "sha256"]),
        default="xxh3",
        help="Checksum of each file in the manifest. crc32c is that of object stores.",
    ),
)

text_format = Bundle(
    _text(
        "--dialect",
        type=click.Choice(DIALECTS),
        default=DIALECTS[0],
        help="Named set of the options below; single options override it.",
    ),
    _text(
        "--delimiter",
        type=types.TEXT,
        show_default=BY_DIALECT,
        help=r"Text between two values. Escapes: \xHH \t \n \r \\.",
    ),
    _text(
        "--enclosure",
        type=types.TEXT,
        show_default=BY_DIALECT,
        help="One or more characters around a value. Escapes as for --delimiter.",
    ),
    _text(
        "--enclose",
        type=click.Choice(["minimal", "strings", "all", "none"]),
        show_default=BY_DIALECT,
        help="Values to enclose: where needed, all text and dates, all but NULL, or none.",
    ),
    _text(
        "--escape",
        type=click.Choice(["double", "backslash", "none"]),
        show_default=BY_DIALECT,
        help="How an enclosure inside a value is written; none refuses such a value.",
    ),
    _text(
        "--null",
        type=types.TEXT,
        show_default=BY_DIALECT,
        help=r"Text of NULL, never enclosed. Escapes as for --delimiter; \N is itself.",
    ),
    _text(
        "--eol",
        type=types.END_OF_LINE,
        show_default=BY_DIALECT,
        help="End of a record. Escapes as for --delimiter.",
    ),
    _text(
        "--header/--no-header",
        default=None,
        show_default=BY_DIALECT,
        help="Write the names of the columns as first record of each file.",
    ),
    _text(
        "--trailing-delimiter/--no-trailing-delimiter",
        default=None,
        show_default=BY_DIALECT,
        help="Write a delimiter behind the last value, too.",
    ),
    _text(
        "--record-length",
        type=click.IntRange(0, 20),
        metavar="DIGITS",
        show_default=BY_DIALECT,
        help="Put the length of the record in bytes before it, in so many digits. 0 is not at all.",
    ),
    _text(
        "--encoding",
        type=types.ENCODING,
        show_default=BY_DIALECT,
        help="Character encoding of the files, by Python's names.",
    ),
    _text(
        "--substitute",
        type=types.TEXT,
        show_default="such a value is refused",
        help="Text in place of each character that --encoding lacks. Escapes as for --delimiter.",
    ),
    _text(
        "--fixed",
        is_flag=True,
        help="Write records of fixed width: each column in its own bytes, padded with blanks.",
    ),
    _text(
        "--width",
        type=types.WIDTHS,
        multiple=True,
        callback=flatten,
        show_default="by the column's type",
        help="With --fixed, bytes of a column's field. Separated by commas, or repeated; in a job "
        "file also a table.",
    ),
    _text(
        "--date-format",
        metavar="MASK",
        show_default=BY_DIALECT,
        help="Oracle mask of dates, for instance YYYYMMDDHH24MISS.",
    ),
    _text(
        "--timestamp-format",
        metavar="MASK",
        show_default=BY_DIALECT,
        help='Oracle mask of timestamps, for instance YYYY-MM-DD"T"HH24:MI:SS.FF6.',
    ),
    _text(
        "--timestamp-tz-format",
        metavar="MASK",
        show_default=BY_DIALECT,
        help="Oracle mask of timestamps with a time zone.",
    ),
    _text(
        "--decimal-separator",
        metavar="TEXT",
        show_default=BY_DIALECT,
        help="Character between the integer and the fraction of a number.",
    ),
    _text(
        "--boolean-format",
        type=click.Choice(["true/false", "t/f", "1/0"]),
        show_default=BY_DIALECT,
        help="The words for true and for false.",
    ),
    _text(
        "--binary-format",
        type=click.Choice(["prefixed-hex", "hex", "base64"]),
        show_default=BY_DIALECT,
        help=r"How bytes are written; prefixed-hex is \x6869.",
    ),
    _text(
        "--encoder",
        type=click.Choice(["auto", "native", "plain"]),
        default="auto",
        help="Write with the compiled encoder, or with the plain one, which has the same bytes. "
        "auto is the compiled one where it was built; see unloader formats.",
    ),
)

parquet_format = Bundle(
    _parquet(
        "--row-group-rows",
        type=types.COUNT,
        default="1048576",
        help="Rows of one row group at most.",
    ),
    _parquet(
        "--row-group-bytes",
        type=types.SIZE_FROM_1,
        default="32MiB",
        help="Size at which a row group ends, in bytes as they lie in memory.",
    ),
    _parquet(
        "--parquet-version",
        type=click.Choice(["1.0", "2.4", "2.6"]),
        default="2.6",
        help="Version of the format, which decides the types that may be used.",
    ),
    _parquet(
        "--data-page-version",
        type=click.Choice(["1.0", "2.0"]),
        default="1.0",
        help="Version of the pages; all readers know 1.0.",
    ),
    _parquet(
        "--dictionary/--no-dictionary",
        default=True,
        help="Write dictionary pages for columns whose values repeat.",
    ),
    _parquet(
        "--statistics/--no-statistics",
        default=True,
        help="Write the least and the greatest value of each column, row group and page.",
    ),
    _parquet(
        "--byte-stream-split/--no-byte-stream-split",
        default=False,
        help="Write floating point, and other numbers where that is smaller, byte by byte. Spark 3 "
        "and 4.0 cannot read that.",
    ),
    _parquet(
        "--bloom-filter",
        type=types.NAMES,
        multiple=True,
        callback=flatten,
        help="Write a Bloom filter for these columns. Separated by commas, or repeated. Needs "
        "pyarrow 24.",
    ),
    _parquet(
        "--sorted-by",
        type=types.ORDER,
        multiple=True,
        callback=flatten,
        help="Order of the rows in each file, for instance DAY,ID desc, told in the file. Rows in "
        "another order stop the run. Separated by commas, or repeated.",
    ),
)
