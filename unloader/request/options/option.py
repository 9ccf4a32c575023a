"""How an option is declared: everything that any part of the program must know of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal

from unloader.request.options.kinds import FLAG, Kind
from writers.records import dataclass

Effect = Literal["selects", "changes", "none", "unrecorded"]
"""selects: fewer rows or columns, or others; changes: what is written of them, where to, and how it
is checked; none: neither; unrecorded: secrets and how things are shown, in no log or manifest."""

Scope = Literal["run", "table", "route"]
"""What an option is of, and so where it may stand in a job file: at the top alone; below [[table]],
too; or below [[route]] as well."""

Circumstance = Literal["streams", "objects", "tables", "fixed"]
"""Where an option may be out of place: output to a pipe, to an object store, to a table of a
lakehouse, and records of fixed width."""

ONE_VALUE = ("codecs", "plan", "run", "preflight")
"""Commands that take a single value of what a sweep varies."""

READING = (*ONE_VALUE, "sweep")
"""Commands that take the options of a run."""

CONNECTING = ("describe", "init", "verify", *READING)
"""Commands that open a source."""

REACHING = (*CONNECTING, "resume")
"""Those, and the one that opens the source of an earlier run."""

PASSWORDS = (*REACHING, "check")
"""Those, and the one that opens the source of a job file."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option: a flag, a variable UNLOADER_<NAME> and a key of the job file at once.

    The command line, the checks, the request, the job file, the manifest's record and the reference
    page follow from it.
    """

    name: str
    """Without the dashes in front, as in a job file."""
    kind: Kind
    help: str
    section: str
    """Heading on the help page."""
    commands: tuple[str, ...]
    """The commands that take it."""
    effect: Effect
    scope: Scope = "run"
    expands: bool = True
    """Variables in its text are replaced in a job file; those of a command are the shell's."""
    field: str = ""
    """Dotted path of its field in the request; empty where no field is its own."""
    owner: type[Any] | None = None
    """The dataclass that has that field; the option's default is the field's."""
    shape: Callable[[Any], Any] | None = None
    """Makes the field's value of the option's, where the two differ."""
    default: Any = None
    """Where no field has it; None is nothing."""
    default_text: str = ""
    """Shown in place of a default that depends on something else; the option is None then."""
    formats: tuple[str, ...] = ()
    """The formats that know it; empty is all."""
    in_files: bool = True
    """A job file may have it as a key; else it has another form there."""
    multiple: bool = False
    """It may be repeated; the value is a tuple of all items."""
    opposite: bool = False
    """A flag that the same name with no- in front switches off."""
    required: bool = False
    empty: bool = True
    """An empty text says something; else it is refused, as an unset variable of a script."""
    planned: bool = False
    """A plan has decided it, and a run of the plan cannot change it."""
    kept: bool = True
    """A plan file brings it back."""
    secret: bool = False
    """Its value may hold a password, so only the number of its items is shown."""
    metavar: str = ""
    """What the help page shows for the value; empty is the kind's own."""
    record: str = ""
    """Key of its value in the manifest's options; empty is none."""
    not_for: Mapping[Circumstance, str] = dataclasses.field(default_factory=dict)
    """Where it does not apply, and why, or what is missing there."""

    @cached_property
    def key(self) -> str:
        """Its name with underscores: the parameter of commands, and a key of job files."""
        return self.name.replace("-", "_")

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Its key, and the one that says the opposite if there is one."""
        return (self.key, f"no_{self.key}") if self.opposite else (self.key,)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The names of its environment variables, one for each key."""
        return tuple(f"UNLOADER_{key.upper()}" for key in self.keys)

    @cached_property
    def initial(self) -> Any:
        """The value where nobody sets it; None where that depends on something else."""
        if self.default_text:
            return None
        if self.default is None and self.owner is not None and self.shape is None:
            return default_of(self.owner, self.field.rpartition(".")[2])
        return False if self.default is None and self.is_flag else self.default

    @property
    def is_flag(self) -> bool:
        """Whether it is set without a value."""
        return self.kind is FLAG

    def knows(self, output_format: str) -> bool:
        """Return whether it says something to a format."""
        return not self.formats or output_format in self.formats


def default_of(owner: type[Any], name: str) -> Any:
    """Return the default of a dataclass's field; None where it has none."""
    found = next(each for each in dataclasses.fields(owner) if each.name == name)
    if found.default_factory is not dataclasses.MISSING:
        return found.default_factory()
    return None if found.default is dataclasses.MISSING else found.default


def of_scope(options: Iterable[Option], scope: Scope) -> tuple[Option, ...]:
    """Return the options that may stand at a place of a job file: what is of a route, anywhere."""
    taken = {"run": ("run", "table", "route"), "table": ("table", "route"), "route": ("route",)}
    return tuple(each for each in options if each.in_files and each.scope in taken[scope])


def of_command(options: Iterable[Option], command: str) -> tuple[Option, ...]:
    """Return the options that a command takes, in the order of the help page."""
    return tuple(option for option in options if command in option.commands)
