"""How people write sizes, counts, durations, escapes, lists and job files."""

from __future__ import annotations

from pathlib import Path

import pytest

from unloader.errors import ConfigError, UsageError
from unloader.settings import (
    parse_count,
    parse_numbers,
    parse_seconds,
    parse_size,
    parse_width,
    read_job_file,
    split_list,
    unescape,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1_000", 1000),
        ("64MiB", 64 * 2**20),
        ("64 mib", 64 * 2**20),
        ("4M", 4 * 2**20),
        ("1KiB", 1024),
        ("1kB", 1000),
        ("1GB", 10**9),
        ("1GiB", 2**30),
        ("2TB", 2 * 10**12),
        ("2TiB", 2 * 2**40),
        ("1.5MB", 1_500_000),
        ("0.1kB", 100),
    ],
)
def test_sizes_take_binary_and_decimal_units(text: str, expected: int) -> None:
    """KiB and K count in 1024, kB in 1000, and fractions are exact."""
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1.2", "1XB", "1 2", "0.0001kB", "1e6", "１"])
def test_what_is_no_size_is_refused_by_its_text(text: str) -> None:
    """A size that cannot be understood or is not whole is named in the message."""
    with pytest.raises(ValueError, match="is not a size") as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200k", 200_000), ("50M", 50_000_000), ("10_000_000", 10**7), ("1.5M", 1_500_000)],
)
def test_counts_are_decimal(text: str, expected: int) -> None:
    """A k is a thousand rows, never 1024."""
    assert parse_count(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("1", 1.0), ("0.5", 0.5), ("500ms", 0.5), ("5m", 300.0), ("2h", 7200.0)]
)
def test_durations_are_seconds_unless_they_say_otherwise(text: str, expected: float) -> None:
    """A bare number is seconds; ms, s, m and h are understood."""
    assert parse_seconds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\x01", "\x01"),
        (r"\t", "\t"),
        (r"\r\n", "\r\n"),
        (r"\\t", r"\t"),
        (r"\N", r"\N"),
        ("~~", "~~"),
        ("", ""),
    ],
)
def test_escapes_stand_for_characters(text: str, expected: str) -> None:
    r"""\xHH, \t, \n, \r and \\ are replaced, and \N stays what MySQL means by it."""
    assert unescape(text) == expected


@pytest.mark.parametrize("text", [r"\q", r"\x1", r"\xZZ", "\\"])
def test_an_unknown_escape_is_refused(text: str) -> None:
    """A typing error in an escape never ends up in the files."""
    with pytest.raises(ValueError, match="is not an escape"):
        unescape(text)


def test_lists_are_cut_at_commas_outside_of_quotes() -> None:
    """A quoted item keeps its commas and its quotes; blanks around items go."""
    assert split_list('A, "b,c" ,D') == ("A", '"b,c"', "D")
    assert split_list('"say ""x"", y"') == ('"say ""x"", y"',)


@pytest.mark.parametrize("text", ["", "A,,B", ",A", "A,", '"A', 'A,"B'])
def test_a_list_with_a_hole_or_an_open_quote_is_refused(text: str) -> None:
    """An empty item or an open quote is a mistake, not a name."""
    with pytest.raises(ValueError, match=r"empty item|not closed"):
        split_list(text)


def test_node_lists_take_ranges() -> None:
    """Numbers and ranges come out once each, in ascending order."""
    assert parse_numbers("2-3,0,3") == (0, 2, 3)
    with pytest.raises(ValueError, match="3-1"):
        parse_numbers("3-1")


def test_numbers_beyond_reason_are_refused() -> None:
    """A typing error neither fills the memory nor overflows what C libraries take."""
    with pytest.raises(ValueError, match="beyond 65535"):
        parse_numbers("0-99999999999")
    assert parse_size("9223372036854775807") == 2**63 - 1
    for parse, text in (
        (parse_size, "9223372036854775808"),
        (parse_size, "9999999999TiB"),
        (parse_count, "9" * 30),
        (parse_seconds, "9" * 400),
    ):
        with pytest.raises(ValueError, match="too large"):
            parse(text)


def write(directory: Path, text: str) -> Path:
    """Return a job file with this text."""
    path = directory / "job.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_job_file_may_use_dashes_underscores_and_a_run_table(tmp_path: Path) -> None:
    """Keys at the top and in [run] are one set, with TOML's own kinds of values."""
    path = write(tmp_path, 'file-size = "1MiB"\ncolumns = ["A"]\n[run]\nfile_per = "table"\n')
    known = {"file_size", "columns", "file_per"}
    assert read_job_file(path, known) == {
        "file_size": "1MiB",
        "columns": ["A"],
        "file_per": "table",
    }


def test_an_unknown_key_is_told_with_the_closest_known_one(tmp_path: Path) -> None:
    """A typing error in a job file does not pass unnoticed."""
    with pytest.raises(ConfigError, match=r"'fil-size'.*did you mean 'file-size'"):
        read_job_file(write(tmp_path, "fil-size = 1"), {"file_size", "columns"})


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    """The same option at the top and in [run], or in both spellings, is a contradiction."""
    with pytest.raises(ConfigError, match="twice"):
        read_job_file(write(tmp_path, "file-size = 1\n[run]\nfile_size = 2\n"), {"file_size"})


def test_a_password_in_a_job_file_is_refused_without_showing_it(tmp_path: Path) -> None:
    """A secret in a job file is a usage error that does not repeat it."""
    with pytest.raises(UsageError, match="password") as caught:
        read_job_file(write(tmp_path, 'password = "tiger"'), {"table"})
    assert "tiger" not in str(caught.value)


@pytest.mark.parametrize("content", [b"table = ", b"\xff\xfe"])
def test_a_broken_job_file_is_named(tmp_path: Path, content: bytes) -> None:
    """What is not TOML, or not text, is a configuration error with the file's name."""
    path = tmp_path / "job.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"job\.toml is not TOML"):
        read_job_file(path, {"table"})


def test_a_missing_job_file_is_named(tmp_path: Path) -> None:
    """A path that is not there is a configuration error with the path."""
    with pytest.raises(ConfigError, match="nowhere"):
        read_job_file(tmp_path / "nowhere.toml", {"table"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("NAME=15", ("NAME", 15)), ('"a=b" = 7', ('"a=b"', 7)), (" x =1", ("x", 1))],
)
def test_widths_are_a_column_and_its_bytes(text: str, expected: tuple[str, int]) -> None:
    """The last equals sign counts; quotes stay."""
    assert parse_width(text) == expected


@pytest.mark.parametrize("text", ["NAME", "=5", "NAME=", "NAME=0", "NAME=-1", "NAME=5k"])
def test_other_widths_are_refused(text: str) -> None:
    """The message repeats what was written."""
    with pytest.raises(ValueError, match=text):
        parse_width(text)
