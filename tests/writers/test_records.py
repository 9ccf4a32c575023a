"""Our dataclasses are those of the standard library in everything but when they are compiled."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from writers import records

ROOT = Path(__file__).parents[2]

T = TypeVar("T")


@pytest.fixture(autouse=True, params=[0, 16])
def first_calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first objects are made by a compiled `__init__`, or as they are."""
    monkeypatch.setattr(records, "_CALLS_AS_THEY_ARE", request.param)


def shapes(dataclass: Any) -> dict[str, Any]:
    """Return a class of each shape, made by a decorator."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Plain:
        """With defaults of all kinds."""

        a: int
        b: str = "x"
        c: tuple[int, ...] = field(default_factory=tuple)
        d: float = field(default=0.5, compare=False, repr=False)
        kind: ClassVar[str] = "plain"

        def twice(self) -> int:
            return self.a * 2

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Below(Plain):
        e: int = 0

    @dataclass(slots=True)
    class Open:
        a: int
        b: list[int] = field(default_factory=list)
        seen: int = field(default=3, init=False)
        made: list[int] = field(default_factory=list, init=False, compare=False)

        def __post_init__(self) -> None:
            self.seen += self.a

    @dataclass(frozen=True)
    class Loose:
        a: int
        b: int = field(default=2, hash=False)

    @dataclass(frozen=True, slots=True)
    class Own:
        a: int

        def __repr__(self) -> str:
            return f"own {self.a}"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.a % 10 == other.a % 10

        def __hash__(self) -> int:
            return self.a % 10

    @dataclass(slots=True)
    class Equal:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Of(Generic[T]):
        value: T
        next: Of[T] | None = None

    @dataclass
    class Bare:
        pass

    made = (Plain, Below, Open, Loose, Own, Equal, Of, Bare)
    for each in made:
        # Pickle finds a class by its name.
        each.__qualname__ = each.__name__
    return {each.__name__: each for each in made}


OURS, THEIRS = shapes(records.dataclass), shapes(dataclasses.dataclass)
MADE: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "Plain": ((), {"a": 1}),
    "Below": ((), {"a": 1, "e": 2, "c": (4,)}),
    "Open": ((5,), {}),
    "Loose": ((5,), {}),
    "Own": ((13,), {}),
    "Equal": ((1,), {}),
    "Of": ((), {"value": "v"}),
    "Bare": ((), {}),
}


def outcome(ask: Callable[[], Any]) -> Any:
    """Return what a call returns, or its error."""
    try:
        return ask()
    except Exception as error:
        # The full name of a function, which says where the class was made, is left out.
        return type(error), str(error).rpartition("__init__()")[2]


@pytest.mark.parametrize("name", MADE)
def test_objects_behave_as_those_of_the_library(name: str) -> None:
    """Their text, equality, hash, fields, copies, and what they refuse."""
    found = []
    for made in (OURS[name], THEIRS[name]):
        positional, named = MADE[name]
        one, same = (made(*positional, **named) for _ in range(2))
        first = dataclasses.fields(made)[0].name if dataclasses.fields(made) else "none"
        found.append(
            [
                repr(one),
                one == same,
                one != same,
                one == 1,
                outcome(lambda one=one, same=same: hash(one) == hash(same)),
                outcome(lambda one=one: hash(one) and None),
                [(f.name, f.type, f.kw_only) for f in dataclasses.fields(one)],
                dataclasses.is_dataclass(one),
                outcome(lambda one=one: dataclasses.asdict(one)),
                repr(copy.copy(one)),
                repr(copy.deepcopy(one)),
                outcome(lambda one=one, first=first: setattr(one, first, 7)),
                # Some versions of the library refuse it with a TypeError of their own making.
                outcome(lambda one=one: setattr(one, "other", 7)) is None,
                outcome(lambda one=one, first=first: delattr(one, first)),
                outcome(lambda made=made: made(**{"nobody": 1})),
                getattr(made, "__slots__", None),
                made.__match_args__,
            ]
        )
    ours, theirs = found
    assert ours == theirs


@pytest.mark.parametrize("name", ["Plain", "Below", "Open", "Loose", "Of"])
def test_objects_are_pickled_and_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field comes back, those that are not compared among them."""
    made = OURS[name]
    monkeypatch.setattr(f"{__name__}.{name}", made, raising=False)
    monkeypatch.setattr(made, "__module__", __name__)
    positional, named = MADE[name]
    one = made(*positional, **named)
    first = dataclasses.fields(made)[0].name
    other = dataclasses.replace(one, **{first: 99})
    assert getattr(other, first) == 99
    ours = records.replace(one, **{first: 99})
    assert type(ours) is made
    with pytest.raises(TypeError):
        records.replace(one, no_field=1)
    for each in (one, other, ours):
        back = pickle.loads(pickle.dumps(each))
        assert back == each
        assert [getattr(back, f.name) for f in dataclasses.fields(made)] == [
            getattr(each, f.name) for f in dataclasses.fields(made)
        ]
    assert [getattr(ours, f.name) for f in dataclasses.fields(made)] == [
        getattr(other, f.name) for f in dataclasses.fields(made)
    ]


def test_methods_are_compiled_once_and_stay() -> None:
    """Whoever asks for one finds the same afterwards, in the class that defines it."""
    made = shapes(records.dataclass)["Plain"]
    assert type(vars(made)["__init__"]).__name__ == "_Later"
    for number in range(17):
        assert made(a=number).a == number
    compiled = vars(made)["__init__"]
    made(a=2)
    assert vars(made)["__init__"] is compiled
    assert made.__init__ is compiled
    assert shapes(records.dataclass)["Below"](a=1).twice() == 2


@pytest.mark.parametrize("name", MADE)
def test_tools_find_the_arguments_and_their_types(name: str) -> None:
    """As those of the library."""
    found = []
    for made in (OURS[name], THEIRS[name]):
        signature = inspect.signature(made)
        parameters = [(p.name, p.kind, p.annotation) for p in signature.parameters.values()]
        found.append((parameters, made.__init__.__annotations__, made.__init__.__module__))
    assert found[0] == found[1]


def test_a_subclass_that_is_no_dataclass_may_have_attributes_of_its_own() -> None:
    """As in the library: fields stay as they are."""

    class More(OURS["Loose"]):  # type: ignore[misc]
        pass

    one = More(1)
    one.other = 3
    assert one.other == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.a = 2


def test_what_contains_itself_has_a_text() -> None:
    """It ends where it would begin again."""
    one = OURS["Open"](1)
    one.b.append(one)
    assert repr(one) == "Open(a=1, b=[...], seen=4, made=[])"


def test_every_room_uses_it() -> None:
    """One class of the library costs as much as eight of ours."""
    taken = re.compile(
        r"^from dataclasses import (\([^)]*|[^\n]*)\bdataclass\b|^@dataclasses\.dataclass", re.M
    )
    found = [
        str(path.relative_to(ROOT))
        for package in ("unloader", "writers")
        for path in sorted((ROOT / package).rglob("*.py"))
        if taken.search(path.read_text("utf-8"))
    ]
    assert found == [], "take `dataclass` from the `records` of the package"
