"""How an option is declared: everything that any part of the program must know about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal

from msgspec import NODEFAULT, Struct

from unloader.request.options.kinds import FLAG, Kind

Effect = Literal["selects", "changes", "none", "unrecorded"]
"""selects: fewer or other rows or columns. changes: how they are written and checked, and where.
none: neither. unrecorded: secrets and options of the display, in no log and no manifest."""

Scope = Literal["run", "table", "route"]
"""The part of a job that an option belongs to. In a job file, an option of a run is at the top, one
of a table also below [[table]], and one of a route also below [[route]]."""

Circumstance = Literal["streams", "objects", "tables", "fixed"]
"""Where an option may not apply: output to a pipe, to an object store, to a table of a lakehouse,
and records of fixed width."""

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


class Option(Struct, frozen=True, kw_only=True, dict=True):
    """One option: a flag, a variable UNLOADER_<NAME> and a key of the job file.

    The command line, the checks, the request, the job file, the manifest's record and the reference
    page follow from it.
    """

    name: str
    """Without the dashes, as in a job file."""
    kind: Kind
    help: str
    section: str
    """Group on the help page: one word, which `unloader help COMMAND GROUP` takes."""
    commands: tuple[str, ...]
    """The commands that take it."""
    effect: Effect
    scope: Scope = "run"
    expands: bool = True
    """Variables in its text are replaced in a job file; the shell replaces those in a command."""
    field: str = ""
    """Dotted path of its field in the request; empty if it has no field."""
    owner: type[Any] | None = None
    """The dataclass that has that field; the option's default is the field's."""
    shape: Callable[[Any], Any] | None = None
    """Returns the value of the field for a value of the option, where the two differ."""
    default: Any = None
    """The default of an option without a field; None means that it has no value."""
    default_text: str = ""
    """Shown instead of a default that depends on something else; the value is then None."""
    formats: tuple[str, ...] = ()
    """The formats that know it; empty is all."""
    in_files: bool = True
    """A job file may have it as a key; otherwise it has another form there."""
    multiple: bool = False
    """It may be repeated; the value is a tuple of all items."""
    opposite: bool = False
    """A flag that no- and the same name switch off."""
    required: bool = False
    empty: bool = True
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
    """Key of its value in the options of the manifest; empty if it is not recorded there."""
    not_for: Mapping[Circumstance, str] = {}
    """Where it does not apply, and the reason."""

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
            return default_of(self.owner, self.field.rpartition(".")[2])
        return False if self.default is None and self.is_flag else self.default

    @property
    def is_flag(self) -> bool:
        """Whether it is set without a value."""
        return self.kind is FLAG

    def knows(self, output_format: str) -> bool:
        """Return whether it applies to a format."""
        return not self.formats or output_format in self.formats


def default_of(owner: type[Struct], name: str) -> Any:
    """Return the default of a record's field; None if it has no default."""
    names, defaults = owner.__struct_fields__, owner.__struct_defaults__
    place = names.index(name) - len(names) + len(defaults)
    found = defaults[place] if place >= 0 else NODEFAULT
    if (factory := getattr(found, "factory", None)) is not None:
        return factory()
    return None if found is NODEFAULT else found


def of_scope(options: Iterable[Option], scope: Scope) -> tuple[Option, ...]:
    """Return the options that one place of a job file may have."""
    taken = {"run": ("run", "table", "route"), "table": ("table", "route"), "route": ("route",)}
    return tuple(each for each in options if each.in_files and each.scope in taken[scope])


def of_command(options: Iterable[Option], command: str) -> tuple[Option, ...]:
    """Return the options that a command takes, in the order of the help page."""
    return tuple(option for option in options if command in option.commands)
