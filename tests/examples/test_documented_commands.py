"""Each command of README.md and docs/ ends with status 0 on small tables, in the order of its page.

Its run is made before it if no earlier command of the page made one: a finished run for `verify`, an
interrupted one for `resume`, an active one for `stop`. A DuckDB file replaces Oracle, a directory
replaces an object store, and PostgreSQL is the server of the tests.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
from contextlib import suppress
from datetime import datetime, timezone
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import duckdb
import pytest
from lakehouse.catalogs import lake
from long_tests import also
from processes import breaking, command
from pyiceberg.exceptions import NoSuchTableError

from unloader.cli.group import COMMANDS, group

ROOT = Path(__file__).parents[2]
FIRST = ("README.md", "README.ja.md")
"""The pages of a plain run."""

OTHERS = sorted({f"docs/{each.name}" for each in (ROOT / "docs").glob("*.md")}.difference(FIRST))
PARSED = {
    "--cluster": "needs a Dask cluster: tests/system/test_cluster.py",
    "ducklake:": "needs DuckDB with its extension: tests/system/test_ducklake.py",
    "age1...": "needs a recipient: tests/system/test_encryption.py",
    "adbc://snowflake": "needs Snowflake: tests/contract/test_contract_adbc.py",
    "odbc:Driver": "needs the host of a database: tests/contract/test_contract_odbc.py",
    "--lob-files": "needs Oracle: tests/system/test_lob_files.py",
    "network": "needs other hosts: tests/system/test_network.py",
    "--sysfs": "needs the record of a machine: tests/unloader/cli/commands/test_topology.py",
}
"""Parts of command lines that are only parsed, and why."""

MEASURING = ("sweep", "preflight", "codecs")
"""Commands that take seconds: on pages except docs/cli.md they are only parsed, too."""

BLOCK = re.compile(r"^```(?:sh)?\n(.*?)^```$|((?:^ {4}.*\n)+)", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(
    r"^ *(?:\$ |[\d*]\S*(?: \S+){4} +)?unloader ((?:.*\\\n)*.*?)(?: 2>.*)?$", re.MULTILINE
)
"""A command at the start of a line, after the prompt of a shell, or after the times of cron."""

SMALLER = {
    r"(--parallelism|--cores) (\d*[3-9]|\d\d+|32\S+|1,2,4\S*)(?= |$)": r"\1 2",
    r"aws s3 cp": "echo",
    r"--rows 200k": "--rows 2k",
    r"--disk-bytes 8GiB": "--disk-bytes 1MiB",
    r"--seconds 30": "--seconds 0.1",
    r"^( sweep .*--to .*)$": r"\1 --repeats 1 --warm-up 0",
    r"^( preflight \S+:.*)$": r"\1 --disk-bytes 1MiB --levels 1 --without encoder",
    r"--sample \d%": "--sample 50%",
}
"""Values that take long on the machine of the tests, and their replacements."""

ORDERS = """SELECT i AS id, i % 50 AS customer_id, DATE '2026-01-31' AS day, i * 1.5 AS amount,
    TIMESTAMP '2026-01-31 12:00:00' AS created, 'note ' || i AS note"""
TABLES = {
    **dict.fromkeys(("orders", "items", "hash_part_0160", "tmp_1"), ORDERS),
    "t": "SELECT i AS id, 'note' AS note, i AS email",
    "customers": "SELECT i AS id, 'p' || i || '@mail.example' AS email, DATE '1970-01-01' AS born, "
    "4000000000000000 + i AS card",
    "lines": "SELECT i AS id, i AS order_id, 'x' AS item",
}
EVENTS = "CREATE TABLE events (id int) PARTITION BY LIST (id)" + "".join(
    f"; CREATE TABLE events_{name} PARTITION OF events FOR VALUES IN ({number})"
    for number, name in enumerate(("2025", "2026_01", "2026_02"))
)
LONG = ("--table", "long", "--unit-bytes", "16KiB", "--parallelism", "2")
PAUSED = (*LONG, "--min-free", "1000TB")
"""Options of a run of many units, and of one that waits for space on the disk."""

OF_A_RUN = ("size", "verify", "report", "status", "resume", "clean", "stop", "set", "runs")
"""Commands whose first argument is the place of a run."""


def shell_words(line: str) -> list[str]:
    """Return the words of a command line before its first pipe, redirection or `&`."""
    words = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars="|&>;")
    words.whitespace_split = True
    return list(takewhile(lambda word: word[0] not in "|&>;", filter(None, words)))


class World:
    """A directory with the databases, keys and job files that the pages name."""

    def __init__(self, root: Path, postgres: str) -> None:
        """Make them."""
        self.root, self.postgres = root, postgres
        root.chmod(0o700)
        for name in ("data", "etc/unloader", ".secrets", "tmp", "var/spool/unloaded"):
            (root / name).mkdir(parents=True)
        key = base64.b64encode(bytes(32)).decode()
        for name in ("etc/unloader/mask.key", "etc/unloader/password", ".secrets/db01", "t.key"):
            (root / name).write_text(key)
            (root / name).chmod(0o600)
        for name, schemas in (("sales", ("main",)), ("schemas", ("main", "sales"))):
            with duckdb.connect(str(root / f"data/{name}.db")) as session:
                session.execute("CREATE SCHEMA IF NOT EXISTS sales")
                for schema in schemas:
                    for table, rows in TABLES.items():
                        session.execute(
                            f"CREATE TABLE {schema}.{table} AS {rows} FROM range(200) t(i)"
                        )
        shutil.copy(root / "data/sales.db", root / "data/shop.db")
        with duckdb.connect(str(root / "data/long.db")) as session:
            session.execute(
                "CREATE TABLE long AS SELECT i, 'text ' || i AS v FROM range(20000) t(i)"
            )
        job = f'source = "duckdb://{root}/data/sales.db"\ntable = "orders"\nto = "{root}/extract/job"\n'
        for name in ("night.toml", "nightly.toml", "etc/unloader/nightly.toml", "orders.toml"):
            (root / name).write_text(job)
        shutil.copy(ROOT / "examples/published_points.csv", root / "points.csv")
        (root / "examples").symlink_to(ROOT / "examples")
        self.made = set(root.iterdir())
        self.keys = {"UNLOADER_MASKING_KEY_DEFAULT": key}
        self.lake = lake(root)

    def words(self, line: str) -> list[str]:
        """Return the words of a command line, up to a pipe, with the places of this world."""
        line = line.replace("\\\n", " ")
        name = "schemas" if re.search(r"SALES\.|--schema SALES|oracle:", line) else "sales"
        source = f"duckdb://{self.root}/data/{name}.db"
        if re.search(r"--keep-snapshot|events_|convert_to", line):
            source = shlex.quote(self.postgres)
        line = line.replace("iceberg://prod/sales.", "iceberg://lake/ns.")
        line = re.sub(r"(?<=[ ,=:'])(?:s3:/|~)?/(?=[a-z.])", f"{self.root}/", f" {line}")
        line = line.replace("duckdb:///data/", f"duckdb://{self.root}/data/")
        line = re.sub(
            r"(?:oracle|mysql)://\S+|'adbc://[^']*'|'odbc:DSN[^']*'|(?<= )\$?(SOURCE|U)(?=\s|$)",
            lambda _: source,
            line,
        )
        line = re.sub(r"'?postgresql://[^\s']*'?", lambda _: shlex.quote(self.postgres), line)
        line = line.replace("/20261124", f"/{datetime.now(timezone.utc):%Y%m%d}")
        for pattern, smaller in SMALLER.items():
            line = re.sub(pattern, smaller, line)
        return shell_words(line)

    def run(self, *words: str) -> str:
        """Make one call, and return its standard output."""
        of_catalog = self.lake.env if any(word.startswith("iceberg:") for word in words) else {}
        env = {**os.environ, **self.keys, **of_catalog}
        done = command.ended(*words, env=env, cwd=self.root)
        assert done.returncode == 0, f"{shlex.join(words)}: exit {done.returncode}: {done.stderr}"
        return done.stdout

    def execute(self, words: list[str]) -> None:
        """Run a command in the state that it needs."""
        verb, first = words[0], next(iter(words[1:]), "")
        for name in ("sweep.json", "sweep.csv", "ceilings.json", "plan.json"):
            read = any(name in word.split(",") for word in words)
            read = read and "--save" not in words and words[-2:] != ["--output", name]
            if read and not (self.root / name).exists():
                self._make(name)
        makes = verb in ("run", "sweep", "plan", "check")
        if makes and not {"--part", "append"}.intersection(words):
            places = words[words.index("--to") + 1] if "--to" in words else "extract/job"
            for place in places.split(","):
                self.remove(place)
        if verb == "init" and "--output" in words:
            (self.root / words[-1]).unlink(missing_ok=True)
        if verb == "keepers" and "--end" in words:
            kept = ("--keep-snapshot", "1h", "--output", "kept.json")
            self.run("plan", self.postgres, "--table", "t", *kept)
            plan = (self.root / "kept.json").read_text()
            keepers = json.loads(self.run("keepers", "--json"))["keepers"]
            # Other tests of this user keep snapshots at the same time.
            words[-1] = next(each["run_id"] for each in keepers if each["snapshot"] in plan)
        place = words[words.index("--from") + 1] if verb == "size" else first
        is_file = Path(place).suffix in (".json", ".csv") or "," in place
        if verb not in OF_A_RUN or place.startswith("iceberg:") or is_file:
            self.run(*words)
        elif verb in ("resume", "clean"):
            for each in words[1:] if "/disk" in place else (place,):
                running = self._started(each, "data/long.db", *LONG)
                path = self.root / each
                running.wait_until(lambda: len(breaking.staged_units(path)) > 0, "a finished unit")  # noqa: B023
                running.process.kill()
                running.finish()
            self.run(*words)
            self.remove(place)
        elif verb in ("stop", "set"):
            running = self._started(place, "data/long.db", *PAUSED)
            record = self.root / place / "_run/run.json"
            running.wait_until(record.exists, "the record of the run")
            self.run(*words)
            if verb == "set":
                self.run("stop", place)
            assert running.finish()[0] == 130
            self.remove(place)
        else:
            source = next((word for word in words[2:] if "://" in word), "")
            manifest = self.root / place / "_manifest.json"
            if verb == "runs":
                manifest.parent.mkdir(parents=True, exist_ok=True)
            elif not manifest.exists():
                self.remove(place)
                table = ("--table", "orders", "--to", place, "--verify", "source")
                self.run("run", source or f"duckdb://{self.root}/data/sales.db", *table)
            elif source:
                words[2] = json.loads(manifest.read_text())["source"]["location"]
            self.run(*words)

    def clear(self) -> None:
        """Remove the files of the commands of a page."""
        for each in set(self.root.iterdir()) - self.made - {self.root / "catalog.db"}:
            shutil.rmtree(each) if each.is_dir() else each.unlink()

    def remove(self, place: str) -> None:
        """Remove the runs of a place, or of the directory above its fields."""
        if place == "iceberg://lake/ns.orders":
            with suppress(NoSuchTableError):
                self.lake.open().drop_table("ns.orders")
        place = place.rpartition(":")[2] or "-"
        if "{" in place:
            place = os.path.dirname(place.partition("{")[0])
        path = os.path.relpath(self.root / place, self.root)
        for each in self.root.glob(path) if path != "." else ():
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)

    def _make(self, name: str) -> None:
        orders = (f"duckdb://{self.root}/data/sales.db", "--table", "orders")
        if name.startswith("sweep"):
            measured = ("--parallelism", "1,2", "--repeats", "1", "--warm-up", "0")
            shown = self.run(
                "sweep", *orders, "--to", "null:", *measured, "--csv", "sweep.csv", "--json"
            )
            (self.root / "sweep.json").write_text(shown)
        elif name == "plan.json":
            self.run("plan", *orders, "--to", str(self.root / "planned"), "--output", name)
        else:
            small = ("--disk-bytes", "1MiB", "--levels", "1", "--without", "encoder")
            self.run("preflight", *orders, "--to", "tmp", *small, "--save", name)

    def _started(self, place: str, source: str, *options: str) -> command.Forked:
        self.remove(place)
        words = ("run", f"duckdb://{self.root}/{source}", "--to", str(self.root / place), *options)
        return command.Forked(*words, "--progress", "none")


def commands(page: str) -> list[str]:
    """Return the command lines of a page without the word `unloader`."""
    blocks = (found[1] or found[2] for found in BLOCK.finditer((ROOT / page).read_text("utf-8")))
    found = (line for block in blocks for line in COMMAND.findall(block))
    found = (line.replace(" ... ", " SOURCE --table T --to DEST ") for line in found)
    return [line for line in found if line.split()[0] in COMMANDS and "[OPTIONS]" not in line]


def parse(line: str) -> None:
    """Read the options of a command line; an unknown option or value is an error."""
    verb, *words = shell_words(line)
    with click.Context(group, info_name="unloader") as root:
        found = group.get_command(root, verb)
        assert found is not None
        found.make_context(verb, words, parent=root)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, postgres: Any) -> World:
    """One for all pages: each command begins with the state that it needs."""
    url = postgres.database("documented")
    made = "CREATE TABLE {} AS {} FROM generate_series(0, 199) t(i);"
    postgres.run("".join(made.format(*each) for each in TABLES.items()) + EVENTS, url=url)
    return World(tmp_path_factory.mktemp("world"), url)


@pytest.mark.parametrize("page", [*FIRST, *also("commands of pages", *OTHERS)])
def test_the_commands_of_a_page(page: str, world: World) -> None:
    """They end with status 0; a command that needs a missing service is only parsed."""
    failed = []
    world.clear()
    for line in commands(page):
        try:
            measures = line.split()[0] in MEASURING and page != "docs/cli.md"
            if measures or any(part in line for part in PARSED):
                parse(line)
            else:
                world.execute(world.words(line))
        except Exception as error:
            failed.append(f"{line}: {error}")
    assert not failed, "\n".join(failed)


def test_every_reason_for_a_command_that_is_only_parsed_is_used() -> None:
    """A list that is longer than needed hides commands that could run."""
    lines = [line for page in (*FIRST, *OTHERS) for line in commands(page)]
    assert len(lines) >= 250
    assert all(any(part in line for line in lines) for part in PARSED)
