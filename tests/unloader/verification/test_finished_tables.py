"""A finished run over several tables held against the source that it came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec.structs import replace
from processes import command
from several_tables import made, requests_of, unload

from unloader import api
from unloader.errors import UsageError, VerifyMismatch
from unloader.events import Event, Notice
from unloader.model import Setting, SourceSpec, TablesOptions
from unloader.sources.duckdb.catalog import DuckDBCatalog

SIZES = {"large": 900, "middle": 200, "small": 10, "empty": 0}


@pytest.fixture
def source(tmp_path: Path) -> SourceSpec:
    """A DuckDB file of four tables."""
    return made(tmp_path / "s.db", SIZES)


@pytest.fixture
def home(source: SourceSpec, tmp_path: Path) -> Path:
    """The home of a run over them."""
    unload(requests_of(source, f"{tmp_path}/out/{{schema}}.{{table}}", list(SIZES)))
    return tmp_path / "out"


@pytest.mark.parametrize("level", ["count", "source"])
def test_the_source_is_opened_once_for_all_tables(
    source: SourceSpec, home: Path, monkeypatch: pytest.MonkeyPatch, level: Any
) -> None:
    """All are compared with one state of it, and described together."""
    opened: list[str] = []
    method, alone = DuckDBCatalog.__init__, DuckDBCatalog.describe

    def counted(self: DuckDBCatalog, *arguments: Any) -> None:
        opened.append("open")
        method(self, *arguments)

    def described(self: DuckDBCatalog, *arguments: Any) -> Any:
        opened.append("describe")
        return alone(self, *arguments)

    monkeypatch.setattr(DuckDBCatalog, "__init__", counted)
    monkeypatch.setattr(DuckDBCatalog, "describe", described)
    answer = api.verify(home, source, level=level)
    assert opened == ["open"]
    assert answer["snapshot"] == "at the run's snapshot"
    assert answer["source_rows"] == sum(SIZES.values())
    assert {each["table"]: each["source_rows"] for each in answer["tables"]} == {
        f"main.{name}": rows for name, rows in SIZES.items()
    }


def test_a_source_that_has_changed_is_told_of_once(source: SourceSpec, home: Path) -> None:
    """And every table that has other rows now is named."""
    with duckdb.connect(source.location) as connection:
        connection.execute("INSERT INTO small VALUES (11, 'later'); DELETE FROM middle WHERE i = 1")
    told: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Notice):
            told.append(event.text)

    with pytest.raises(VerifyMismatch) as caught:
        api.verify(home, source, observe=listen)
    assert [text for text in told if "the source has changed since the run" in text] == told
    assert len(told) == 1
    message = caught.value.message
    assert "2 of 4 tables" in message
    assert "main.small: the manifest has 10 rows, but the source counts 11" in message
    assert "main.middle: the manifest has 200 rows, but the source counts 199" in message


def test_a_table_that_is_gone_is_named_and_the_others_are_checked(
    source: SourceSpec, home: Path
) -> None:
    """With what differs in the others."""
    with duckdb.connect(source.location) as connection:
        connection.execute("DROP TABLE middle; DELETE FROM large WHERE i = 1")
    with pytest.raises(VerifyMismatch) as caught:
        api.verify(home, source)
    message = caught.value.message
    large, _, middle = message.partition("; the source cannot count")
    assert "1 of 4 tables is not as the run wrote it: main.large: the manifest has 900 r" in large
    assert "the rows of 1 of 4 tables, whose files are as the run wrote them: main.mid" in middle


def test_the_files_of_a_table_that_is_gone_are_checked(source: SourceSpec, home: Path) -> None:
    """The source alone is named, unless the files differ, too; the snapshot is not blamed."""
    with duckdb.connect(source.location) as connection:
        connection.execute("DROP TABLE middle")
    line = ("verify", str(home), f"duckdb://{source.location}")
    done = command.ended(*line)
    assert done.returncode == 8
    assert "not as the run wrote" not in done.stderr
    assert "cannot be read any more" not in done.stderr
    assert "whose files are as the run wrote them: main.middle: the table main.mi" in done.stderr
    assert "Next: to verify the files alone, leave SOURCE out" in done.stderr
    command.run(*line[:2])
    next(home.glob("*middle/*.csv")).write_text("i\n")
    error = command.error_of(*line, status=8)
    assert "1 of 4 tables is not as the run wrote it: main.middle: " in error
    assert "cannot count" not in error


def test_a_level_that_a_table_refuses_names_the_table(home: Path) -> None:
    """A run that recorded no checksums cannot be compared with them."""
    with pytest.raises(UsageError, match=r"^main\.large: run .* recorded no checksums"):
        api.verify(home, level="full")


def test_the_answer_has_what_selected_the_rows(source: SourceSpec, tmp_path: Path) -> None:
    """Settings of the run come once, and settings of one table with its name."""
    shared = Setting(name="where", value="i > 5", origin="command line", effect="selects")
    own = Setting(name="columns", value="i", origin="job file", effect="selects")
    first, second = requests_of(source, f"{tmp_path}/out/{{table}}", ["large", "small"])
    unload(
        [replace(first, settings=(shared,)), replace(second, settings=(shared, own))],
        TablesOptions(destination="", settings=(shared,)),
    )
    answer = api.verify(tmp_path / "out")
    assert answer["selected_by"] == [shared.text, f"main.small: {own.text}"]
    assert [each["selected_by"] for each in answer["tables"]] == [
        [shared.text],
        [shared.text, own.text],
    ]
