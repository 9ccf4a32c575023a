"""How an option is declared: everything that any part of the program must know about it.

An option of a run is metadata of the field of the request that it sets, and its help is the
docstring of the field:

    retries: Annotated[int, Option(whole(0), group="Safety", commands=READING)] = 3
    '''Number of retries of a failed work unit.'''

An option that is not a field of the request is an attribute of a class of options. Its name, its
kind of value and its default follow from the field where they are not given. The command line, the
variables, the job file, the checks, the request, the manifest's record and the reference page
follow from the declaration.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, Literal

from msgspec import NODEFAULT, Struct

from unloader.request.settings import at_home
from unloader.request.value_types import FLAG, Kind

Effect = Literal["selects", "changes", "none", "unrecorded"]
"""selects: fewer or other rows or columns. changes: how they are written and checked, and where.
none: neither. unrecorded: secrets and options of the display, in no log and no manifest."""

Scope = Literal["run", "table", "route"]
"""The part of a job that an option belongs to. In a job file, an option of a run is at the top, one
of a table also below [[table]], and one of a route also below [[route]]."""

Circumstance = Literal["streams", "objects", "tables", "fixed"]
"""Where an option may not apply: output to a pipe, to an object store, to a table of a lakehouse,
and records of fixed width."""

PLANNING = ("plan", "run")
"""Commands that make a plan for a run."""

ONE_VALUE = ("codecs", "plan", "run", "preflight")
"""Commands that take a single value of what a sweep varies."""

READING = (*ONE_VALUE, "sweep")
"""Commands that take the options of a run."""

CONNECTING = ("describe", "init", "verify", *READING)
"""Commands that open a source."""

REACHING = (*CONNECTING, "resume")
"""The same, and the command that opens the source of an earlier run."""

PASSWORDS = (*REACHING, "check")
"""The same, and the command that opens the source of a job file."""

WATCHED = ("demo", *REACHING)
"""Commands that show their progress."""

ANSWERING = (
    *WATCHED,
    *("status", "runs", "stop", "set", "report"),
    *("check", "clean", "merge", "keepers", "topology", "sweep", "formats", "sources", "size"),
    "network",
)
"""Commands that have a result to show."""


class Option(Struct, frozen=True, dict=True):
    """One option: a flag, a variable UNLOADER_<NAME> and a key of the job file."""

    kind: Kind = FLAG
    text: str = ""
    """Its help; empty for the docstring of the field or attribute."""
    more: str = ""
    """A sentence at the end of its help."""
    name: str = ""
    """Without the dashes, as in a job file; empty follows from the name of the field."""
    group: str = ""
    """Group on the help page: one word, which `unloader help COMMAND GROUP` takes."""
    commands: tuple[str, ...] = ()
    """The commands that take it."""
    effect: Effect = "unrecorded"
    scope: Scope = "run"
    default: Any = None
    """The default if it differs from the field's, or has no field; None means no value."""
    default_text: str = ""
    """Shown instead of a default that depends on something else; the value is then None."""
    shape: Callable[[Any], Any] | None = None
    """Returns the value of the field for a value of the option, where the two differ."""
    formats: tuple[str, ...] = ()
    """The formats that know it; empty is all."""
    in_files: bool = True
    """A job file may have it as a key; otherwise it has another form there."""
    expands: bool = True
    """Variables in its text are replaced in a job file; the shell replaces those in a command."""
    opposite: bool = False
    """A flag that no- and the same name switch off."""
    required: bool = False
    empty: bool = False
    """An empty text is a value; otherwise it is refused, as an unset variable of a script."""
    planned: bool = False
    """A plan has decided it, and a run of the plan cannot change it."""
    kept: bool = True
    """A plan file brings it back."""
    secret: bool = False
    """Its value may hold a password, so only the number of its items is shown."""
    metavar: str = ""
    """Text for the value on the help page; empty for the text of the kind."""
    common: bool = False
    """It is on the first screen of help, with the first sentence of `help`."""
    example: str = ""
    """Its value in the example of its help page, or a whole command line."""
    record: str = ""
    """Key in the options of the manifest if it differs from `key`."""
    not_for: Mapping[Circumstance, str] = {}
    """Where it does not apply, and the reason."""
    declared_in: type | None = None
    """The class with the declaration."""
    field: str = ""
    """The name of the field or attribute there."""
    owner: type[Struct] | None = None
    """The Struct with the field that it sets; None if it sets no field."""

    @cached_property
    def help(self) -> str:
        text = self.text
        if not text and self.declared_in is not None:
            text = _docstrings(self.declared_in.__module__)[self.declared_in.__name__, self.field]
        return f"{text} {self.more}".strip()

    @cached_property
    def key(self) -> str:
        """Its name with underscores: the parameter of commands, and a key of job files."""
        return self.name.replace("-", "_")

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Its key, and the key of its opposite if it has one."""
        return (self.key, f"no_{self.key}") if self.opposite else (self.key,)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The names of its environment variables, one for each key."""
        return tuple(f"UNLOADER_{key.upper()}" for key in self.keys)

    @cached_property
    def initial(self) -> Any:
        """The value if it is not set; None if that depends on something else."""
        if self.default_text:
            return None
        if self.default is None and self.owner is not None and self.shape is None:
            names, defaults = self.owner.__struct_fields__, self.owner.__struct_defaults__
            place = names.index(self.field) - len(names) + len(defaults)
            found = defaults[place] if place >= 0 else NODEFAULT
            if (factory := getattr(found, "factory", None)) is not None:
                return factory()
            return None if found is NODEFAULT else found
        return False if self.default is None and self.is_flag else self.default

    @property
    def is_flag(self) -> bool:
        return self.kind is FLAG

    @property
    def multiple(self) -> bool:
        """Whether it may be repeated; the value is then a tuple of all items."""
        return self.kind.split is not None

    def read(self, value: Any, *, no_shell: bool = True) -> Any:
        """Return the meaning of a value, or all items of a repeated option.

        `~/` is the home directory in a path that `no_shell` has seen. The ValueError of a value
        without a meaning is fit for the user.
        """
        home = at_home if self.kind.is_path and no_shell else str
        if self.multiple:
            found = tuple(item for each in value for item in self.kind.read(each))
            return tuple(map(home, found)) if self.kind.is_path else found
        read = self.kind.read(value)
        if not self.kind.is_path:
            return read
        path, only = home(read), self.kind.only
        if path == "-" and only and not self.kind.shown.endswith("|-"):
            raise ValueError("- is not a name here; write ./- for a path with this name")
        if only and os.path.exists(path) and os.path.isdir(path) != (only == "directory"):
            raise ValueError(f"{path} is {'a directory' if only == 'file' else 'a file'}")
        return path

    def knows(self, output_format: str) -> bool:
        return not self.formats or output_format in self.formats


@cache
def _docstrings(module: str) -> dict[tuple[str, str], str]:
    """Return the docstrings of the attributes of all classes; only the source text has them."""
    found = {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    for each in (part for part in tree.body if isinstance(part, ast.ClassDef)):
        for before, after in pairwise(each.body):
            if isinstance(after, ast.Expr) and isinstance(before, ast.Assign | ast.AnnAssign):
                target = before.targets[0] if isinstance(before, ast.Assign) else before.target
                text = ast.literal_eval(after.value)
                found[each.name, ast.unparse(target)] = " ".join(text.split())
    return found


def of_scope(options: Iterable[Option], scope: Scope) -> tuple[Option, ...]:
    taken = {"run": ("run", "table", "route"), "table": ("table", "route"), "route": ("route",)}
    return tuple(each for each in options if each.in_files and each.scope in taken[scope])
