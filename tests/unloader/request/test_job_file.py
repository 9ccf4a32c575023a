"""Job files: where the keys stand, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from unloader.errors import ConfigError, UsageError
from unloader.request.job_file import place_in, read_job_file


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
    with pytest.raises(
        UsageError, match=r"job\.toml, line 1: .*'fil-size'.*did you mean 'file-size'"
    ):
        read_job_file(write(tmp_path, "fil-size = 1"), {"file_size", "columns"})


def test_an_option_of_another_command_belongs_on_the_command_line(tmp_path: Path) -> None:
    """A job file of a run may be swept; what the sweep itself takes does not stand in it."""
    path = tmp_path / "job.toml"
    path.write_text('table = "T"\nmax-spread = 5\n')
    with pytest.raises(UsageError, match="line 2: a job file holds options of run") as caught:
        read_job_file(path, {"table"}, {"table", "max_spread"})
    assert "--max-spread on the command line" in str(caught.value.hint)


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    """The same option at the top and in [run], or in both spellings, is a contradiction."""
    with pytest.raises(UsageError, match="twice"):
        read_job_file(write(tmp_path, "file-size = 1\n[run]\nfile_size = 2\n"), {"file_size"})


def test_a_password_in_a_job_file_is_refused_without_showing_it(tmp_path: Path) -> None:
    """A secret in a job file is a usage error that does not repeat it."""
    with pytest.raises(UsageError, match="password") as caught:
        read_job_file(write(tmp_path, 'password = "tiger"'), {"table"})
    assert "tiger" not in str(caught.value)


@pytest.mark.parametrize("content", [b"table = ", b"a = " + b"[" * 100_000])
def test_a_broken_job_file_is_named(tmp_path: Path, content: bytes) -> None:
    """What is not TOML is a configuration error with the file's name."""
    path = tmp_path / "job.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"job\.toml is not TOML"):
        read_job_file(path, {"table"})


def test_a_missing_job_file_is_named(tmp_path: Path) -> None:
    """A path that is not there is a configuration error with the path."""
    with pytest.raises(ConfigError, match="nowhere"):
        read_job_file(tmp_path / "nowhere.toml", {"table"})


@pytest.mark.parametrize("mark", ["utf-16", "latin-1"])
def test_a_file_in_another_encoding_is_named(tmp_path: Path, mark: str) -> None:
    """TOML is UTF-8; what is not is told as that."""
    path = tmp_path / "job.toml"
    path.write_bytes('table = "é"'.encode(mark))
    with pytest.raises(ConfigError, match=r"job\.toml is not UTF-8 text"):
        read_job_file(path, {"table"})


def test_a_mark_of_the_byte_order_is_no_mistake(tmp_path: Path) -> None:
    """Editors of Windows put one in front of UTF-8."""
    path = tmp_path / "job.toml"
    path.write_bytes('table = "é"'.encode("utf-8-sig"))
    assert read_job_file(path, {"table"}) == {"table": "é"}


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("[[run]]\ntable = 'a'\n", 1, "not a table"),
        ("run = 1", 1, "not a table"),
        ("table = 't'\n[output]\nto = 'x'", 2, r"no table \[output\]"),
        ("table = 't'\n[run.where]\nto = 'x'", 2, None),
        ("\n[RUN]\ntabel = 't'", 3, "did you mean 'table'"),
        ("where = '''\ntabel = 5\n'''\ntabel = 5", 4, "did you mean 'table'"),
        ("'tabel' = 5", 1, "did you mean 'table'"),
    ],
)
def test_each_mistake_is_told_with_its_line(
    tmp_path: Path, text: str, line: int, what: str | None
) -> None:
    """Other tables, tables of tables and wrong keys are told by file and line."""
    path = write(tmp_path, text)
    if what is None:
        assert place_in(path, "where") == f"{path}, line {line}"
        return
    with pytest.raises(UsageError, match=what) as caught:
        read_job_file(path, {"table", "where"})
    assert f"job.toml, line {line}: " in str(caught.value)
