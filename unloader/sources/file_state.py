"""Database files: paths, catalogs, what distinguishes two states, and a check while one is read.

A state is the file's header, size and time, and the content of the log beside it. The header has
counters that a commit moves, also where size and time stay as they were: `touch -r`, `rsync -t`, a
restored backup, a file system with coarse times. The inode is not part of a state: a file that was
restored from a copy holds the same data.
"""

from __future__ import annotations

import glob
import hashlib
import os
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from partition_planner.model import ColumnInfo, Selector, TableInfo
from unloader.errors import ConfigError, SourceError
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import Extract, SourceSpec, TableName
from unloader.request.names import no_such_table, resolve
from unloader.selection.listing import ListedTable, Listing, Obstacle
from unloader.sources.base import Catalog, described_or_obstacle, info_or_obstacle, quoted_name
from unloader.sources.questions import GONE
from unloader.sources.statement import check_condition, relation_of

_READ = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read(int(sys.argv[2])))"


def database_path(spec: SourceSpec) -> str:
    """Return the absolute path that `duckdb:///absolute/path.db` names, percent-decoded."""
    parts = urlsplit(spec.location)
    path = os.fsdecode(unquote_to_bytes(parts.path))
    plain = not (parts.netloc or parts.query or parts.fragment)
    if not plain or not path.strip("/") or not path.startswith("/") or "\0" in path:
        raise ConfigError(
            f"{spec.location} does not name a file",
            f"write {spec.kind}:///absolute/path.db, with %3F for ? and %23 for # in the path",
        )
    if not os.path.exists(path):
        raise SourceError(f"the file {path} does not exist", "check the path in the URL")
    if not os.path.isfile(path):
        raise SourceError(f"{path} is not a file", "give the path of a database file")
    return path


def header_of(path: str, length: int) -> bytes:
    """Return the first bytes of a file, read by another process, which takes 10 ms.

    POSIX drops all locks of a process on a file as soon as the process closes any descriptor of it.
    This process may have such locks, and so may the program that calls `unloader.api`.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _READ, path, str(length)],
        capture_output=True,
        check=False,
        start_new_session=True,
    )
    if done.returncode:
        cause = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise SourceError(f"cannot read {path}: {cause}")
    return done.stdout


def state_of(path: str, header: bytes, logs: str, *, with_ctime: bool = False) -> str:
    """Return one line that differs between any two states of a file.

    A log is hashed as a whole, since a database that opens the file reads all of it, too. An empty
    log only shows when a program last opened the file. `logs` is the pattern of what the names of
    logs add to the file's name. `with_ctime` includes the time of the last change of the inode,
    which no program can set; a copy of the file is another state then.
    """
    # Logs are beside the file itself, also where the path is a symbolic link.
    path = os.path.realpath(path)
    try:
        status = os.stat(path)
        digest = hashlib.sha256(header).hexdigest()[:16]
        parts = [f"header={digest}", f"size={status.st_size}", f"mtime_ns={status.st_mtime_ns}"]
        if with_ctime:
            parts.append(f"ctime_ns={status.st_ctime_ns}")
        for log in sorted(glob.glob(glob.escape(path) + logs)):
            with suppress(FileNotFoundError):
                if os.stat(log).st_size:
                    with open(log, "rb") as file:
                        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
                    parts.append(f"{log[len(path) + 1 :]}={digest}")
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error}") from error
    return " ".join(parts)


class FileCatalog(Catalog):
    """The parent's view of a database file, which has no access rights."""

    path: str

    @abstractmethod
    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; raise SourceError where the database refuses."""

    @abstractmethod
    def explain(self, sql: str) -> object:
        """Have one statement parsed without running it."""

    @abstractmethod
    def plain_tables(
        self, keys: Sequence[tuple[str, str]], observe: Observer = silent
    ) -> dict[tuple[str, str], TableInfo | SourceError]:
        """Return descriptions of ordinary tables that exist, or errors, by schema and name."""

    @abstractmethod
    def derived_columns(self, schema: str, name: str) -> tuple[ColumnInfo, ...]:
        """Return the columns of a view or virtual table."""

    @abstractmethod
    def count_statement(self, extract: Extract, selector: Selector) -> str:
        """Return the statement that counts the rows of a selector."""

    def shadows(self) -> set[str]:
        """Return the names of tables that hold what another table is made of."""
        return set()

    def list_tables(self) -> Listing:
        shadows = self.shadows()
        return Listing.of(
            [ListedTable.of(each, system=each.name in shadows) for each in self.tables()],
            folding=self.capabilities.folding,
            default_schemas=("main",),
            where=self.path,
        )

    def describe(self, table: TableName, observe: Observer = silent) -> TableInfo:
        folding = self.capabilities.folding
        found = resolve(
            table, self.tables(), folding=folding, default_schemas=("main",), where=self.path
        )
        schema, name = found.schema or "main", found.name
        if found.kind == "table":
            info = self.plain_tables([(schema, name)], observe).get((schema, name))
            if info is None:
                raise no_such_table(table, (), folding, self.path)
            if isinstance(info, SourceError):
                raise info
            return info
        observe(PhaseStarted(phase="columns"))
        return TableInfo(
            schema=schema,
            name=name,
            columns=self.derived_columns(schema, name),
            named_partitions=False,
            row_ranges=False,
        )

    def describe_tables(
        self, tables: Sequence[ListedTable], observe: Observer = silent
    ) -> tuple[TableInfo | Obstacle, ...]:
        kinds = {(table.schema or "", table.name): table.kind for table in self.tables()}
        plain = self.plain_tables(
            [table.key for table in tables if kinds.get(table.key) == "table"], observe
        )
        return tuple(
            GONE
            if each.key not in kinds
            else info_or_obstacle(plain[each.key])
            if each.key in plain
            else described_or_obstacle(self, quoted_name(*each.key), observe)
            for each in tables
        )

    def check_where(self, extract: Extract) -> None:
        if extract.where is not None:
            check_condition(self.explain, relation_of(extract), extract.where)

    def count_selected(self, extract: Extract, selectors: Sequence[Selector]) -> int:
        counts = [self.rows(self.count_statement(extract, each)) for each in selectors]
        self.check_snapshot()
        return sum(int(rows[0][0]) for rows in counts)


def inode_of(path: str) -> tuple[int, int]:
    """Return the device and inode of a file, or zeros if the file does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)
