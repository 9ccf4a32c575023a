"""Passwords in a keyring, with one that keeps them in a file in its own form."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KEYRING = {"PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring"}

PROGRAM = """
import sys
from unloader.errors import ConfigError
from unloader.model import SecretReference, SourceSpec
from unloader.redaction import redact
from unloader.sources.password import password_of

reference = SecretReference(kind="keyring", name=sys.argv[1])
spec = SourceSpec(kind="postgresql", location="postgresql://etl@db01/x", secret=reference)
try:
    found = password_of(spec)
    print(found, redact(f"it is {found}."))
except ConfigError as error:
    print(f"{error.message} | {error.hint}")
"""


def ask(home: Path, name: str, stored: bool = True, **variables: str) -> str:
    """Return the output of a process that looks for a password in a separate keyring."""
    surroundings = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home), **variables}
    if stored:
        subprocess.run(
            [sys.executable, "-m", "keyring", "set", "https://db01/sales", "etl"],
            input="Hunter2Xyzzy\n", env=surroundings, text=True, check=True, capture_output=True,
        )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        env={**surroundings, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_password_is_found_and_hidden(tmp_path: Path) -> None:
    """What `keyring set` stored is the password, and is in no text from then on."""
    said = ask(tmp_path, "https://db01/sales/etl", **KEYRING)
    assert said == "Hunter2Xyzzy it is ***."


@pytest.mark.parametrize("name", ["https://db01/sales/other", "sales/etl"])
def test_a_password_that_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    """The error names service and user, and the command that stores the password."""
    said = ask(tmp_path, name, **KEYRING)
    service, _, user = name.rpartition("/")
    assert f"no password of {user} for {service} | keyring set {service} {user}" in said


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    """Without the extra, the error has the command that installs it."""
    (tmp_path / "keyring.py").write_text("raise ModuleNotFoundError('', name='keyring')\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program, "sales/etl"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'keyring' is not installed | pip install 'unloader[keyring]'" in done.stdout
