"""Routes on the command line and in job files: their meaning, and refused ones."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from unloader.cli.group import group
from unloader.cli.streams import Invocation
from unloader.request.settings import parse_route


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a small table."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS id, 'x' || i AS name FROM range(9) t(i)")
    return f"duckdb://{path}"


def refusal(*arguments: str) -> str:
    """Return what a call of `plan` that must fail says."""
    result = CliRunner().invoke(group, ["plan", *arguments], obj=Invocation())
    assert result.exit_code != 0
    assert result.exception is not None
    return f"{result.exception} {result.output}"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("a:to=x", "b:to=x,format=parquet"), "which are the same directory"),
        (("a:to=x", "b:to=x/y"), "and one is inside the other"),
        (("a:to=x", "a:to=y"), "two routes have the name a"),
        (("a:to=x", "b:format=parquet"), "route b: it has no destination"),
        (("a:to=x", "b:to=-"), "route b: it goes to -"),
        (("a:to=x", 'b:to=y,filter="colour = 1"'), "colour"),
        (("a:to=x", "b:to=y,filter=id + 1"), "instead of true or false"),
        (("a:to=x", "b:to=y,filter=count(*) > 1"), "aggregate"),
        (("a:to=x", "b:to=y,filter=id > random()"), "does not depend on the row"),
        (("a:to=x,where=id>1", "b:to=y"), "different values of where"),
        (("a:to=x", "b:to=y,parallelism=3"), "parallelism is not an option of a route"),
        (("a:to=x", "b:to=y,columns=nothing"), "nothing"),
        (("a:to=x", "b:to=y,format=parquet,delimiter=;"), "route b: --delimiter"),
    ],
)
def test_what_routes_cannot_be(
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    texts: tuple[str, ...],
    expected: str,
) -> None:
    """Each mistake is one error before anything is written."""
    monkeypatch.chdir(tmp_path)
    said = [part for text in texts for part in ("--route", text)]
    assert expected in refusal(source, "--table", "t", *said)
    assert not list(tmp_path.iterdir())


def test_a_route_in_text() -> None:
    """Values end at commas outside of quotes."""
    assert parse_route('lake: to=/a b, columns="ID,""x""" ,filter=a = 1') == (
        "lake",
        (("to", "/a b"), ("columns", 'ID,"x"'), ("filter", "a = 1")),
    )


@pytest.mark.parametrize(
    "text", ["a", ":to=x", ".:to=x", "a:to", "a:to=x,", 'a:to="x', "a:to=x,to=y", 'a:to=x"y']
)
def test_a_text_that_is_no_route(text: str) -> None:
    """It is refused with its form; what may be a secret is not shown."""
    with pytest.raises(ValueError, match="route") as refused:
        parse_route(text)
    assert "=x" not in str(refused.value)


def test_a_plan_shows_each_route(source: str, tmp_path: Path) -> None:
    """Its place, its filter, and its columns with their types there; nothing is made."""
    said = [f"lake:to={tmp_path}/lake,format=parquet,columns=id,filter=name <> 'x1'"]
    said += [f"text:to={tmp_path}/text,exclude=id"]
    routes = [part for text in said for part in ("--route", text)]
    result = CliRunner().invoke(group, ["plan", source, "--table", "t", *routes], obj=Invocation())
    assert result.exit_code == 0, result.output
    lake, text = result.output.split("route lake")[1].split("route text")
    assert f"{tmp_path}/lake" in lake
    assert "name <> 'x1'" in lake
    assert [line.split()[:3] for line in lake.splitlines() if line.startswith("id ")] == [
        ["id", "BIGINT", "int64"]
    ]
    assert f"{tmp_path}/text" in text
    assert [line.split()[:2] for line in text.splitlines() if line.startswith("name ")] == [
        ["name", "VARCHAR"]
    ]
    assert not list(tmp_path.iterdir())


def test_a_check_counts_the_columns_that_are_written(source: str, tmp_path: Path) -> None:
    """A column that the filter alone looks at is not among them."""
    job = tmp_path / "job.toml"
    job.write_text(
        f'source = "{source}"\ntable = "t"\nto = "{tmp_path}/out"\n'
        'columns = ["name"]\nfilter = "id > 3"\n',
        encoding="utf-8",
    )
    result = CliRunner().invoke(group, ["check", str(job)], obj=Invocation())
    assert result.exit_code == 0, result.output
    columns = result.output.partition("column of")[2]
    assert "name" in columns
    assert "BIGINT" not in columns
