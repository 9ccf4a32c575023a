"""Questions to the data dictionary, each asked for one table, or for many in one statement.

Who needs an answer asks for one table and need not know which of the two it is: a table is
described in the same way alone and among others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from unloader.errors import SourceError
from unloader.sources.oracle.connection.session import Session

Row = tuple[Any, ...]

NAMES_TOGETHER = 500
"""Tables that one statement asks for; a list of Oracle's takes 1,000 items at most."""


class Question(Struct, frozen=True, kw_only=True):
    """What is asked of a view of the dictionary about tables."""

    select: str
    """The columns of the answer."""
    view: str
    """The view, or a join."""
    owner: str | None = "OWNER"
    """The column with the tables' owner; None in a view of the user's own."""
    name: str = "TABLE_NAME"
    """The column with the tables' names."""
    where: str = ""
    """A condition beside those on owner and name."""
    order: str = ""
    """What the rows of one table are ordered by."""

    def of_one(self) -> str:
        """Return the statement for one table, with the binds `owner` and `name`."""
        return self._statement(self.select, ":name", within="= {}")

    def of_many(self, count: int) -> str:
        """Return the statement for tables of an owner; owner and name come before the answer."""
        owner = self.owner or "NULL"
        names = ", ".join(f":n{at}" for at in range(count))
        return self._statement(f"{owner}, {self.name}, {self.select}", names, within="IN ({})")

    def _statement(self, columns: str, names: str, *, within: str) -> str:
        conditions = [f"{self.owner} = :owner"] if self.owner else []
        conditions.append(f"{self.name} {within.format(names)}")
        conditions += [self.where] if self.where else []
        text = f"SELECT {columns} FROM {self.view} WHERE {' AND '.join(conditions)}"
        return f"{text} ORDER BY {self.order}" if self.order else text


class Dictionary(Protocol):
    """What answers questions."""

    @property
    def session(self) -> Session:
        """The parent's session."""

    def rows(self, question: Question, owner: str, name: str) -> list[Row]:
        """Return the answer for one table.

        Raises:
            SourceError: The user may not see the view, or the connection is lost.
        """


class OneTable:
    """Asks for each table by itself, as it is now."""

    def __init__(self, session: Session) -> None:
        """Ask by this session."""
        self.session = session

    def rows(self, question: Question, owner: str, name: str) -> list[Row]:
        """Run a statement."""
        binds = {"owner": owner, "name": name} if question.owner else {"name": name}
        return self.session.run(question.of_one(), binds)


class ManyTables:
    """Asks each question once for all tables, when it first comes up; refusals are remembered."""

    def __init__(self, session: Session, tables: Iterable[tuple[str, str]]) -> None:
        """Ask by this session for these tables, by owner and name."""
        self.session = session
        self._names: dict[str, list[str]] = {}
        for owner, name in tables:
            self._names.setdefault(owner, []).append(name)
        self._answers: dict[tuple[Question, str], dict[str, list[Row]] | SourceError] = {}

    def rows(self, question: Question, owner: str, name: str) -> list[Row]:
        """Return what was answered; ask if nobody has."""
        asked = (question, owner)
        if asked not in self._answers:
            self._answers[asked] = self._asked(question, owner)
        answer = self._answers[asked]
        if isinstance(answer, SourceError):
            raise answer
        return answer.get(name, [])

    def _asked(self, question: Question, owner: str) -> dict[str, list[Row]] | SourceError:
        """Return the rows of all tables of an owner, by name, or the database's refusal."""
        names = self._names.get(owner, [])
        found: dict[str, list[Row]] = {}
        try:
            for start in range(0, len(names), NAMES_TOGETHER):
                some = names[start : start + NAMES_TOGETHER]
                for _, name, *row in self._run(question, owner, some):
                    found.setdefault(name, []).append(tuple(row))
        except SourceError as error:
            if not self.session.alive:
                raise
            return error
        return found

    def _run(self, question: Question, owner: str, names: Sequence[str]) -> list[Row]:
        binds = {f"n{at}": name for at, name in enumerate(names)}
        if question.owner:
            binds["owner"] = owner
        return self.session.run(question.of_many(len(names)), binds)
