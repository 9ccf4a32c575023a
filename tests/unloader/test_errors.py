"""The tree of errors a user meets, and the way of every other error into it."""

from __future__ import annotations

import inspect
import pickle
import re
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec
from pathlib import Path
from pkgutil import ModuleInfo, walk_packages

import pytest
from schemas.option_pages import status_table

from unloader import errors
from unloader.cli.commands.help import STATUSES
from unloader.errors import (
    LEAF_ERRORS,
    ConfigError,
    Interrupted,
    OutputFailed,
    PartialUnload,
    PlanFailed,
    SnapshotGone,
    SnapshotTooOld,
    SourceError,
    StorageUnavailable,
    TransientSourceError,
    UnloaderError,
    WorkerLost,
    error_class,
    translate,
)
from writers.errors import FormatError, SchemaMismatch, ValueNotRepresentable, WriteError

ROOT = Path(__file__).parents[2]
EXIT_CODES = {
    cls.__name__: cls.exit_code for cls in (UnloaderError, *UnloaderError.__subclasses__())
}
LEAVES = ("numa", "partition_planner", "writers")


def tree() -> list[type[UnloaderError]]:
    """Return every class of the module."""
    return [
        found
        for _, found in inspect.getmembers(errors, inspect.isclass)
        if issubclass(found, UnloaderError)
    ]


def is_library(module: ModuleInfo) -> bool:
    """Return whether a module is one of C functions: none of ours that is compiled is for Python.

    The installer names them as it names extensions.
    """
    spec = find_spec(module.name)
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)


def leaf_errors() -> list[type[Exception]]:
    """Return every exception that a module of a leaf defines, in public or not.

    One of the system's errors is translated where the file is opened, as the others are.
    """
    found = set()
    for leaf in LEAVES:
        package = import_module(leaf)
        for module in walk_packages(package.__path__, f"{leaf}."):
            if is_library(module):
                continue
            for _, each in inspect.getmembers(import_module(module.name), inspect.isclass):
                ours = issubclass(each, Exception) and not issubclass(each, OSError)
                if ours and each.__module__.split(".")[0] == leaf:
                    found.add(each)
    return sorted(found, key=lambda each: each.__qualname__)


def has_entry(cls: type) -> bool:
    """Return whether the class or one of its bases is in the map."""
    return any(f"{base.__module__}:{base.__qualname__}" in LEAF_ERRORS for base in cls.__mro__)


def is_base_only(cls: type) -> bool:
    return bool(cls.__subclasses__()) and all(has_entry(each) for each in cls.__subclasses__())


@pytest.mark.parametrize("cls", leaf_errors(), ids=lambda cls: cls.__qualname__)
def test_every_error_of_a_leaf_has_a_way_into_the_tree(cls: type[Exception]) -> None:
    """No error of a leaf reaches the user as a fault of the program for want of an entry."""
    assert has_entry(cls) or is_base_only(cls)


@pytest.mark.parametrize("name", LEAF_ERRORS)
def test_every_entry_names_an_error_that_is_there(name: str) -> None:
    """The map holds text, so a renamed class would be missed by no one but the user."""
    module, _, attribute = name.partition(":")
    assert issubclass(getattr(import_module(module), attribute), Exception)


def test_the_leaves_have_errors() -> None:
    """The walk above finds all of them."""
    assert {"WriteError", "FormatError", "PlanError", "PoolError"} <= {
        each.__qualname__ for each in leaf_errors()
    }


@pytest.mark.parametrize("cls", tree(), ids=lambda cls: cls.__qualname__)
@pytest.mark.parametrize("message", ["it broke", "it broke.", "why?", "no!", "cut short..."])
def test_the_text_always_ends_in_what_to_do(cls: type[UnloaderError], message: str) -> None:
    """Each error is one sentence of what failed and one of what to do, hint given or not."""
    for hint in ("", "pull the lever"):
        text = str(cls(message, hint))
        assert text.startswith(message.rstrip(". "))
        assert text.count("Next: ") == 1
        assert text.endswith(hint or cls.usual_hint)
        assert cls.usual_hint
        assert ". . " not in text
        assert ".. " not in text


def test_every_exit_code_has_a_meaning() -> None:
    """`help exit-statuses` and docs have 0 and exactly the codes of the classes."""
    assert list(STATUSES) == [0, *sorted(EXIT_CODES.values())]
    words = {"SourceError": "source", "PlanFailed": "plan", "Interrupted": "SIGINT"}
    for name, word in words.items():
        assert word in STATUSES[EXIT_CODES[name]]


def test_the_page_of_exit_statuses_has_the_table_of_the_program() -> None:
    """Make it again with: tests/support/schemas/option_pages.py statuses."""
    assert status_table() in (ROOT / "docs" / "exit-statuses.md").read_text("utf-8")


def test_exit_codes_are_those_of_the_tree_in_the_docstring() -> None:
    """Each class the docstring draws has the code it says, and no class with a code is missing."""
    drawn = dict(re.findall(r"(\w+) +(\d+)   ", errors.__doc__ or ""))
    assert {name: int(code) for name, code in drawn.items()} == EXIT_CODES
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)


def test_errors_that_are_worth_a_retry() -> None:
    """Each ends a run with the same status as its kind; only the marked ones are retried."""
    assert TransientSourceError.exit_code == SourceError.exit_code
    assert WorkerLost.exit_code == PartialUnload.exit_code
    assert SnapshotGone.exit_code == SnapshotTooOld.exit_code == SourceError.exit_code
    assert StorageUnavailable.exit_code == OutputFailed.exit_code
    kinds = (TransientSourceError, WorkerLost, StorageUnavailable)
    again = {cls for cls in tree() if issubclass(cls, kinds)}
    assert {cls for cls in tree() if cls.retryable} == again
    assert SnapshotTooOld in again
    assert SnapshotGone not in again


@pytest.mark.parametrize("cls", tree(), ids=lambda cls: cls.__qualname__)
def test_a_class_is_found_by_its_name(cls: type[UnloaderError]) -> None:
    """What crosses a process as a name comes back as the same class."""
    assert error_class(cls.__name__) is cls


@pytest.mark.parametrize("name", ["NoSuchError", "annotations", "translate", "LEAF_ERRORS", ""])
def test_an_unknown_name_is_a_fault_of_the_program(name: str) -> None:
    """Neither a name that is not there nor another kind of object passes for a user's error."""
    assert error_class(name) is UnloaderError


@pytest.mark.parametrize("cls", leaf_errors(), ids=lambda cls: cls.__qualname__)
def test_a_leaf_error_travels_with_its_hint(cls: type[Exception]) -> None:
    """Message and hint are fields that survive pickling, and the text shows both."""
    for arguments in (("it broke.", "mend it."), ("it broke.",)):
        error = pickle.loads(pickle.dumps(cls(*arguments)))
        assert (error.message, error.hint) == ("it broke.", "".join(arguments[1:]))
        assert str(error) == " Next: ".join(arguments)


def test_a_hint_is_never_read_out_of_a_message() -> None:
    """A message that quotes the words of a hint stays whole; nothing is repeated."""
    error = translate(WriteError("cannot write Next: a.csv.", "make room."))
    assert isinstance(error, OutputFailed)
    assert (error.message, error.hint) == ("cannot write Next: a.csv.", "make room.")
    assert str(error) == "cannot write Next: a.csv. Next: make room."


@pytest.mark.parametrize(
    ("error", "target"),
    [
        (FormatError("x"), ConfigError),
        (ValueNotRepresentable("x"), OutputFailed),
        (SchemaMismatch("x"), UnloaderError),
        (type("Narrower", (FormatError,), {})("x"), ConfigError),
    ],
)
def test_the_most_specific_entry_wins(error: Exception, target: type[UnloaderError]) -> None:
    """A format that cannot be is configuration, although it is a write error by its base."""
    assert type(translate(error)) is target


def test_errors_of_the_tree_pass_and_foreign_ones_are_not_guessed() -> None:
    """Known values come back unchanged; unknown ones become None."""
    known = PlanFailed("no partitions")
    assert translate(known) is known
    assert translate(Interrupted("stopped")).exit_code == 130  # type: ignore[union-attr]
    assert translate(ValueError("x")) is None
    assert translate(KeyboardInterrupt()) is None
