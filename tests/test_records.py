"""Records of `numa` and `partition_planner` are what the standard library's dataclasses are."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
MODULES = ("numa.records", "partition_planner.records")


def made(dataclass: Any) -> dict[str, Any]:
    """Return a class of each shape that the packages have, made by a decorator."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Several:
        """Has defaults, and refuses some values."""

        a: int
        b: tuple[int, ...] = ()
        c: str | None = None

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("a is below 0")

        @property
        def twice(self) -> int:
            return self.a * 2

    @dataclass(frozen=True, slots=True, kw_only=True)
    class One:
        """Has one field."""

        a: float

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Nothing:
        """Has none."""

    @dataclass(slots=True, kw_only=True)
    class Open:
        """Can be changed."""

        a: int
        b: int = 2

    for each in (Several, One, Nothing, Open):
        # Pickle finds a class by its name.
        each.__qualname__ = each.__name__
    return {each.__name__: each for each in (Several, One, Nothing, Open)}


NAN = float("nan")
GIVEN: dict[str, list[dict[str, Any]]] = {
    "Several": [{"a": 1}, {"a": 1, "b": (2,), "c": "x"}, {"a": -1}, {"b": ()}, {"a": 1, "d": 2}],
    "One": [{"a": 1.5}, {"a": NAN}, {}],
    "Nothing": [{}, {"a": 1}],
    "Open": [{"a": 1}, {"a": 1, "b": 3}],
}
ASKED: dict[str, Callable[[Any], Any]] = {
    "repr": repr,
    "hash": hash,
    "equal": lambda one: [one == copy.copy(one), one == 1, one == dataclasses.replace(one)],
    "replaced": lambda one: repr(dataclasses.replace(one, a=7)),
    "unknown": lambda one: dataclasses.replace(one, z=7),
    "dict": dataclasses.asdict,
    "arguments": lambda one: str(inspect.signature(type(one))),
    "fields": lambda one: [(f.name, f.type, f.kw_only) for f in dataclasses.fields(one)],
    "set": lambda one: setattr(one, dataclasses.fields(one)[0].name, 5) or repr(one),
    "delete": lambda one: delattr(one, dataclasses.fields(one)[0].name),
    "has a dictionary": lambda one: hasattr(one, "__dict__"),
    "positional": lambda one: type(one)(1),
    "travelled": lambda one: [
        repr(pickle.loads(pickle.dumps(one, protocol))) for protocol in range(2, 6)
    ],
    "copied": lambda one: repr(copy.deepcopy(one)),
}


def outcome(ask: Callable[[], Any]) -> Any:
    """Return what a call returns, or the kind of its error."""
    try:
        return ask()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("module", MODULES)
def test_records_are_dataclasses(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making, comparing, changing, copying and pickling give the same, and the same errors."""
    theirs, ours = (
        made(each) for each in (dataclasses.dataclass, importlib.import_module(module).dataclass)
    )
    for name, all_given in GIVEN.items():
        for given in all_given:
            answers = []
            for classes in (theirs, ours):
                monkeypatch.setitem(globals(), name, classes[name])
                one = outcome(lambda: classes[name](**given))  # noqa: B023
                asked = {} if isinstance(one, type) else ASKED
                answers.append(
                    [one if isinstance(one, type) else None]
                    + [(what, outcome(lambda: ask(one))) for what, ask in asked.items()]  # noqa: B023
                )
            assert answers[0] == answers[1], (name, given)


def test_the_packages_have_the_same_module() -> None:
    """They import nothing of each other, and what is in both does not drift apart."""
    first, second = (ROOT / f"{name.replace('.', '/')}.py" for name in MODULES)
    assert first.read_text() == second.read_text()
