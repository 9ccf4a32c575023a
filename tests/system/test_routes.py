"""One scan into several outputs: each is what its own run would have written."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from processes import breaking, command
from processes.breaking import kill_after
from requested import requested

from unloader import api
from unloader.errors import PartialUnload
from unloader.events import Event, UnitFinished

ROWS = 20_000
LAKE = 'lake:to={to}/lake,format=parquet,columns="day,id,amount",filter="id % 3 = 1 AND price > 2"'
TEXT = "text:to={to}/text,delimiter=;,exclude=price"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a table whose columns are read for CSV and Parquet in different ways."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE orders AS SELECT i AS id, 'name ' || i AS name, (i % 1000) / 7.0 AS price,"
            " (i * 37.5)::DECIMAL(12, 2) AS amount, DATE '2020-01-01' + (i % 900)::INT AS day,"
            " CASE WHEN i % 11 = 0 THEN NULL ELSE 'x\"y,' || i END AS note"
            f" FROM range({ROWS}) t(i)"
        )
    return f"duckdb://{path}"


def job(source: str, *options: str) -> tuple[str, ...]:
    """Return a run of a few units."""
    units = ("--unit-bytes", "400kB", "--parallelism", "1")
    return ("run", source, "--table", "orders", *units, *options)


def routes(to: Path, *texts: str) -> list[str]:
    """Return routes as options."""
    return [part for text in texts for part in ("--route", text.format(to=to))]


@pytest.fixture(scope="module")
def written(source: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two routes whose values were read back."""
    to = tmp_path_factory.mktemp("routes")
    command.run(*job(source, *routes(to, LAKE, TEXT), "--verify", "full"))
    return to


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the data files of a directory."""
    return {path.name: path.read_bytes() for path in directory.glob("orders.*")}


def test_each_route_is_what_its_own_run_writes(source: str, written: Path, tmp_path: Path) -> None:
    """Files are equal to the byte, in Parquet and in text, with a filter and without."""
    lake, text = tmp_path / "lake", tmp_path / "text"
    command.run(
        *job(source, "--to", str(lake), "--format", "parquet", "--columns", "day,id,amount"),
        *("--filter", "id % 3 = 1 AND price > 2"),
    )
    command.run(*job(source, "--to", str(text), "--delimiter", ";", "--exclude", "price"))
    assert len(files_of(lake)) > 3
    assert files_of(written / "lake") == files_of(lake)
    assert files_of(written / "text") == files_of(text)


def test_the_manifest_of_a_route_tells_what_it_left_out(written: Path) -> None:
    """Both are of one run at one snapshot; rows kept and rows left out are as in the source."""
    lake, text = (command.manifest_of(written / name) for name in ("lake", "text"))
    assert lake["run_id"] == text["run_id"]
    assert lake["snapshot"] == text["snapshot"]
    other = {"name": "text", "to": str(written / "text")}
    assert lake["route"] == {"name": "lake", "others": [other], "dropped": []}
    assert text["route"]["name"] == "text"
    kept = lake["totals"]["rows"]
    assert 0 < kept < ROWS
    assert lake["verified"]["source_rows"] == ROWS == kept + lake["verified"]["filtered_rows"]
    assert "filtered_rows" not in text["verified"]
    assert text["totals"]["rows"] == ROWS
    assert [each["name"] for each in lake["columns"]] == ["day", "id", "amount"]
    assert lake["options"]["filter"] == "id % 3 = 1 AND price > 2"
    assert not (written / "lake" / "_run").exists()


def test_each_route_is_verified_by_itself(source: str, written: Path) -> None:
    """`verify` reads its files, compares their values, and counts the source's rows."""
    command.run("verify", str(written / "lake"), source)
    command.run("verify", str(written / "lake"), "--level", "full")
    command.run("verify", str(written / "text"), source, "--level", "source")


def test_routes_of_a_job_file(source: str, written: Path, tmp_path: Path) -> None:
    """[[route]] means the same as --route; `run` answers with the manifests of all."""
    path = tmp_path / "job.toml"
    path.write_text(
        f"""
source = "{source}"
table = "orders"
unit-bytes = "400kB"
parallelism = 1

[[route]]
name = "lake"
to = "{tmp_path}/lake"
format = "parquet"
columns = ["day", "id", "amount"]
filter = "id % 3 = 1 AND price > 2"

[[route]]
name = "text"
to = "{tmp_path}/text"
delimiter = ";"
exclude = ["price"]
""",
        encoding="utf-8",
    )
    answer = json.loads(command.run("run", str(path), "--json"))
    assert [each["route"]["name"] for each in answer["routes"]] == ["lake", "text"]
    for name in ("lake", "text"):
        assert files_of(tmp_path / name) == files_of(written / name)


def three(to: Path) -> list[str]:
    return routes(to, "a:to={to}/a", "b:to={to}/b,format=parquet", "c:to={to}/c,filter=id % 7 = 0")


@pytest.fixture(scope="module")
def undisturbed(
    source: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, bytes]]:
    """The files of a run of three routes that came to its end, by route."""
    to = tmp_path_factory.mktemp("undisturbed")
    command.run(*job(source, *three(to)))
    return {name: files_of(to / name) for name in "abc"}


@pytest.mark.parametrize("asked", ["c", *also(OTHER_ROUTES, "a")])
def test_a_killed_run_is_resumed_by_any_of_its_directories(
    source: str, tmp_path: Path, undisturbed: dict[str, dict[str, bytes]], asked: str
) -> None:
    """Units that all routes have are kept, and every route ends with the same bytes."""
    staged = kill_after(3, tmp_path / "b", *job(source, *three(tmp_path)), files=3)
    assert staged
    if asked == "c":
        # One route lacks a unit of the others: it is read again, for this route alone.
        for line in (tmp_path / "c" / "_run" / "staged").iterdir():
            line.unlink()
    command.run("resume", str(tmp_path / asked))
    for name in "abc":
        assert files_of(tmp_path / name) == undisturbed[name], name
    kept = {unit["id"]: unit["attempts"] for unit in command.manifest_of(tmp_path / "a")["units"]}
    assert all(kept[unit] == 1 for unit in staged)


def test_a_plan_file_has_all_routes(
    source: str, tmp_path: Path, undisturbed: dict[str, dict[str, bytes]]
) -> None:
    """It is run with only its name, and no route can be changed or added."""
    plan = tmp_path / "plan.json"
    _, *options = job(source, *three(tmp_path))
    command.run("plan", *options, "--output", str(plan), "--quiet")
    assert not (tmp_path / "a").exists()
    command.run("run", str(plan), "--quiet")
    for name in "abc":
        assert files_of(tmp_path / name) == undisturbed[name], name
    error = command.error_of("run", str(plan), "--route", f"d:to={tmp_path / 'd'}", status=2)
    assert "--route cannot change the finished plan" in error


@pytest.mark.long(OTHER_ROUTES)
def test_a_kill_between_two_publications(
    source: str, tmp_path: Path, undisturbed: dict[str, dict[str, bytes]]
) -> None:
    """The first route is whole; resume, asked at that one, publishes the others."""
    library = breaking.killing_library(tmp_path)
    to = tmp_path / "out"
    env = {"LD_PRELOAD": str(library), "KILL_CALL": "renameat2", "KILL_PATH": "/.b.unloader-"}
    died = command.Forked(*job(source, *three(to)), "--progress", "none", env=env)
    assert died.finish()[0] == -signal.SIGKILL
    assert files_of(to / "a") == undisturbed["a"]
    command.run("verify", str(to / "a"))
    command.run("resume", str(to / "a"))
    assert {name: files_of(to / name) for name in "abc"} == undisturbed
    runs = {command.manifest_of(to / name)["run_id"] for name in "abc"}
    assert len(runs) == 1


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("duck") / "u.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE orders AS SELECT i AS id, CASE WHEN i = 9000 THEN chr(26085) ELSE 'x' END"
            " AS v FROM range(12000) t(i)"
        )
    return f"duckdb://{path}"


LATIN = "latin:to={to}/latin,encoding=latin-1"


@pytest.mark.long(OTHER_ROUTES)
def test_a_route_that_fails_may_be_dropped(awkward: str, tmp_path: Path) -> None:
    """The others are whole and report it; its staged units stay, and it can be resumed."""
    drop = ("--on-route-failure", "drop")
    said = command.error_of(*job(awkward, *routes(tmp_path, "a:to={to}/a", LATIN), *drop), status=7)
    assert "1 of 2 routes failed: route latin: column v" in said
    assert f"complete: a in {tmp_path}/a" in said
    assert f"unloader resume {tmp_path}/latin" in said
    manifest = command.manifest_of(tmp_path / "a")
    assert manifest["totals"]["rows"] == 12000
    assert manifest["route"]["dropped"] == ["latin"]
    assert manifest["status"] == "complete"
    assert not files_of(tmp_path / "latin")
    assert (tmp_path / "latin" / "_run" / "run.json").exists()
    command.run("verify", str(tmp_path / "a"), awkward)
    assert "column v" in command.error_of("resume", str(tmp_path / "latin"), status=6)


@pytest.mark.long(OTHER_ROUTES)
def test_a_dropped_route_is_resumed_alone(
    source: str, tmp_path: Path, undisturbed: dict[str, dict[str, bytes]]
) -> None:
    """A file of another user in the way of one publication; without it resume publishes that."""
    request = requested(*job(source, *three(tmp_path), "--on-route-failure", "drop"))
    foreign = tmp_path / "b" / next(iter(undisturbed["b"]))

    def observe(event: Event) -> None:
        if isinstance(event, UnitFinished):
            foreign.write_bytes(b"mine")

    with pytest.raises(PartialUnload, match="1 of 3 routes failed: route b"):
        api.unload(request, observe=observe)
    assert files_of(tmp_path / "a") == undisturbed["a"]
    assert files_of(tmp_path / "c") == undisturbed["c"]
    assert foreign.read_bytes() == b"mine"
    foreign.unlink()
    api.resume(tmp_path / "b")
    assert files_of(tmp_path / "b") == undisturbed["b"]


@pytest.mark.long(OTHER_ROUTES)
def test_routes_of_several_tables(tmp_path: Path) -> None:
    """Each table is written to each route, which is what its own run writes."""
    path = tmp_path / "two.duckdb"
    with duckdb.connect(str(path)) as connection:
        for name in ("first", "second"):
            connection.execute(f"CREATE TABLE {name} AS SELECT i AS id FROM range(2000) t(i)")
    said = ("p:to={to}/p/{{table}},format=parquet", "q:to={to}/q/{{table}},filter=id%2=0")
    asked = (f"duckdb://{path}", "--table", "*", *routes(tmp_path, *said))
    planned = json.loads(command.run("plan", *asked, "--json"))["tables"]
    assert [[route["to"] for route in table["routes"]] for table in planned] == [
        [[str(tmp_path / route / name)] for route in "pq"] for name in ("first", "second")
    ]
    lines = command.run("plan", *asked).splitlines()
    assert len([line for line in lines if str(tmp_path / "q") in line and " csv " in line]) == 2
    command.run("run", *asked)
    runs = set()
    for name in ("first", "second"):
        manifests = [command.manifest_of(tmp_path / route / name) for route in "pq"]
        assert [each["totals"]["rows"] for each in manifests] == [2000, 1000]
        assert [each["table"]["name"] for each in manifests] == [name, name]
        runs |= {each["run_id"] for each in manifests}
    assert len(runs) == 1
    alone = tmp_path / "alone"
    command.run(
        *("run", f"duckdb://{path}", "--table", "first", "--to", str(alone)),
        *("--filter", "id%2=0"),
    )
    (file,) = alone.glob("first.*")
    assert file.read_bytes() == (tmp_path / "q" / "first" / file.name).read_bytes()
