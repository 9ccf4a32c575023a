"""The shared libraries that are built with this package: where one lies, and its functions.

They are built when the package is installed, if there is a C++ compiler, and otherwise missing. A
module for each has its name, its structures and its functions, and loads it once a process.
"""

from __future__ import annotations

import ctypes
import os
import shlex
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from writers.errors import FormatError

Signature = tuple[Any, tuple[Any, ...]]
"""The type of a function's result, None without one, and the types of its arguments."""


class Unusable(FormatError):
    """The library cannot be used; the message says why, as a part of a sentence."""


ArrowArray = ctypes.c_uint64 * 10
"""An array of Arrow's C data interface; only its size matters here."""


def find(name: str, override: str) -> Path | None:
    """Return the built file of a library, or of the build that `override` names; load nothing."""
    if (named := os.environ.get(override)) is not None:
        return Path(named) if named else None
    spec = find_spec(name)
    return Path(spec.origin) if spec is not None and spec.origin else None


def advice() -> str:
    """Return what brings the libraries, as a clause: in a clone, or for an installed package."""
    checkout = Path(__file__).parents[1]
    compiler = "install a C++ compiler (g++ or clang++), then"
    if (checkout / "setup.py").exists():
        return f"{compiler} run: pip install --editable {shlex.quote(str(checkout))}"
    machine = os.uname()
    # pip keeps the package that it built without a compiler, and would install it again.
    return (
        f"install the wheel of unloader for this machine ({machine.sysname.lower()}-"
        f"{machine.machine}); if you have none, "
        f"{compiler} reinstall unloader from its sdist or a clone with: "
        "pip install --force-reinstall --no-cache-dir"
    )


def reason(library: Callable[[], object]) -> str | None:
    """Return why a library cannot be used, None if it can; `library` loads it."""
    try:
        library()
    except Unusable as error:
        return str(error)
    return None


def check_choice(encoder: str, why_not: Callable[[], str | None], choice: str) -> None:
    """Refuse the native encoder, of "text" or "Parquet", if its library cannot be used."""
    if choice == "native" and (reason := why_not()) is not None:
        raise FormatError(
            f"the native {encoder} encoder cannot be used: {reason}.",
            f"{advice()}, or use --encoder plain.",
        )


def open_library(name: str, override: str) -> ctypes.CDLL:
    """Return a library without its functions, or raise Unusable; takes what `find` takes."""
    path = find(name, override)
    if path is None:
        if os.environ.get(override) == "":
            raise Unusable(f"{override} is empty, which switches it off")
        package, _, library = name.rpartition(".")
        folder = Path(__file__).parents[1].joinpath(*package.split("."))
        raise Unusable(f"{folder} has no {library}.so")
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise Unusable(f"it cannot be loaded ({error})") from None


def load(
    name: str, override: str, prefix: str, abi_version: int, functions: Mapping[str, Signature]
) -> ctypes.CDLL:
    """Return a library with its functions declared, which have a common `prefix`; or raise
    Unusable.

    `name` is a module's, `override` as for `find`, and `abi_version` what its function of that name
    must return. `functions` have their names without the prefix.
    """
    loaded = open_library(name, override)
    version_of = getattr(loaded, f"{prefix}abi_version", None)
    version = version_of() if version_of is not None else None
    if version != abi_version:
        raise Unusable(
            f"{Path(loaded._name).name} has the interface version {version}, "
            f"but this package needs {abi_version}"
        )
    for name, (result, arguments) in functions.items():
        function = getattr(loaded, f"{prefix}{name}")
        function.restype, function.argtypes = result, arguments
    return loaded
