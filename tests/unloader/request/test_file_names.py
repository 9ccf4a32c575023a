"""Final names of files: what a template becomes, and which templates are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from unloader.errors import ConfigError, OutputFailed, UsageError
from unloader.model import OutputOptions
from unloader.request.file_names import (
    DEFAULT_TABLE_TEMPLATE,
    NameValues,
    check_distinct,
    check_template,
    file_name,
)
from unloader.request.option import default_of

DEFAULT_TEMPLATE = default_of(OutputOptions, "file_name")
VALUES = NameValues(
    schema="sales",
    table="orders",
    partition="p2024",
    unit="007",
    part=None,
    ext="csv.gz",
    date="20240131",
)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (DEFAULT_TEMPLATE, "orders.007.csv.gz"),
        (DEFAULT_TABLE_TEMPLATE, "orders.csv.gz"),
        ("{schema}-{partition}-{date}-{unit}.{ext}", "sales-p2024-20240131-007.csv.gz"),
        ("{unit}{unit}", "007007"),
        ("plain", "plain"),
    ],
)
def test_fields_are_filled_in(template: str, name: str) -> None:
    """Each field gives way to its value, as often as it is named; the rest stays."""
    assert file_name(template, VALUES) == name


def test_parts_are_numbered_and_sortable() -> None:
    """Where a unit has several files, each has a dot and three digits; more where needed."""
    assert file_name(DEFAULT_TEMPLATE, replace(VALUES, part=2)) == "orders.007.002.csv.gz"
    assert file_name(DEFAULT_TEMPLATE, replace(VALUES, part=1234)) == "orders.007.1234.csv.gz"


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("a/b", "a%2Fb.007.csv.gz"),
        ("a\\b", "a%5Cb.007.csv.gz"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd.007.csv.gz"),
        ("new\nline\0", "new%0Aline%00.007.csv.gz"),
        ("Größe 𝄞", "Größe 𝄞.007.csv.gz"),
        ("{unit}", "{unit}.007.csv.gz"),
    ],
)
def test_no_name_of_a_table_leaves_the_directory(table: str, name: str) -> None:
    """Slashes and control characters are written as %XX; a value is never taken for a field."""
    assert file_name(DEFAULT_TEMPLATE, replace(VALUES, table=table)) == name


@given(st.text(max_size=40), st.text(max_size=40))
def test_every_name_is_one_plain_component(table: str, partition: str) -> None:
    """For any name of a table, a file's name holds no slash and no control byte."""
    values = replace(VALUES, table=table, partition=partition)
    name = file_name("x{table}.{partition}.{unit}", values)
    assert "/" not in name
    assert not any(ord(char) < 32 for char in name)


@pytest.mark.parametrize("table", [".", "..", "_manifest.json", "_run", ".hidden", "-rf"])
def test_a_name_made_of_values_alone_is_no_name_of_ours(table: str) -> None:
    """A table called like the run's own files, or like a directory, cannot take their names.

    Spark and Hive read no file whose name begins with a dot or an underscore; most programs take
    one with a hyphen for an option.
    """
    name = file_name("{table}", replace(VALUES, table=table))
    assert not name.startswith((".", "_", "-"))
    assert name.endswith(table[1:])


def test_a_long_name_is_refused_in_bytes() -> None:
    """File systems count bytes: 255 are allowed, 256 are refused with the option to change it."""
    assert len(file_name("{table}", replace(VALUES, table="x" * 255))) == 255
    for table in ("x" * 256, "ü" * 128):
        with pytest.raises(OutputFailed, match=r"take 255.*--file-name"):
            file_name("{table}", replace(VALUES, table=table))


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("{table}.{nope}", "{nope}"),
        ("{table}.{}", "unknown field"),
        ("{table}.{ext}", "{unit}"),
        ("dir/{unit}", "plain file name"),
        (".{unit}", "plain file name"),
        ("_{unit}", "plain file name"),
        ("-{unit}", "plain file name"),
    ],
)
def test_a_template_that_cannot_serve_is_refused(template: str, what: str) -> None:
    """Unknown fields, names for several files, paths and hidden names are usage errors."""
    with pytest.raises(UsageError) as caught:
        check_template(template, per_unit=True, parts=False)
    assert what in str(caught.value)
    assert "--file-name" in str(caught.value)


def test_a_template_needs_only_what_tells_files_apart() -> None:
    """{part} is needed where units have several files, {unit} where there are several units."""
    check_template(DEFAULT_TEMPLATE, per_unit=True, parts=True)
    check_template("{table}.{ext}", per_unit=False, parts=False)
    check_template("{unit}", per_unit=True, parts=False)
    with pytest.raises(UsageError, match=r"\{part\}"):
        check_template("{unit}", per_unit=True, parts=True)


def test_names_must_differ_by_more_than_case() -> None:
    """Two names that a file system without case takes for one are refused."""
    check_distinct(["a.csv", "b.csv"])
    check_distinct([])
    for names in (["a.csv", "a.csv"], ["a.csv", "A.csv"], ["straße", "STRASSE"]):
        with pytest.raises(ConfigError, match="two files would be named"):
            check_distinct(names)


@pytest.mark.parametrize(
    ("table", "written"),
    [
        ("a\0b", "a%00b"),
        ("a\nb\rc", "a%0Ab%0Dc"),
        ("\x1b]0;title\x07", "%1B]0;title%07"),
        ("\x9b2J", "%C2%9B2J"),
        ("invoice\u202efdp.exe", "invoice%E2%80%AEfdp.exe"),
        ("two\u2028lines", "two%E2%80%A8lines"),
        ("right\u200fto\u061cleft", "right%E2%80%8Fto%D8%9Cleft"),
        ("-rf", "%2Drf"),
        ("~root", "~root"),
    ],
)
def test_what_a_terminal_obeys_is_in_no_file_name(table: str, written: str) -> None:
    """Controls, ends of line and changes of direction become `%XX`, as bytes of UTF-8."""
    assert file_name("{table}.csv", replace(VALUES, table=table)) == f"{written}.csv"


@pytest.mark.parametrize("letters", ["x" * 300, "é" * 150, "日" * 100])
def test_a_name_too_long_for_a_file_is_refused(letters: str) -> None:
    """File systems take 255 bytes; nothing is cut off, since names could become one."""
    with pytest.raises(OutputFailed, match=r"has \d+ bytes, and file systems take 255"):
        file_name(DEFAULT_TEMPLATE, replace(VALUES, table=letters))


@pytest.mark.parametrize(
    "template",
    [
        "../{unit}",
        "a/{unit}",
        "/tmp/{unit}",
        "..",
        ".{unit}",
        "-{unit}",
        "a\x1b[2J{unit}",
        "\u202e{unit}",
    ],
)
def test_a_template_is_one_plain_name(template: str) -> None:
    """No way out of the directory, no hidden file, no option, nothing that a terminal obeys."""
    with pytest.raises(UsageError, match="not a plain file name"):
        check_template(template, per_unit=False, parts=False)
