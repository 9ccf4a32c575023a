"""The source of a command, and the place of its password."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from unloader.cli.options.request_of import refuse_repeated
from unloader.cli.options.tables import table_names
from unloader.cli.signals import seen_while_waiting
from unloader.errors import UsageError
from unloader.model import SecretReference, SessionOptions, SourceSpec
from unloader.redaction import PASSWORD_VARIABLE, known_openly
from unloader.request.locations import keyring_reference, parse_source, secret_reference
from unloader.request.options import fields_of
from unloader.secrets.secret_places import credential
from unloader.sources.registry import KINDS, unknown_to, url_form

_PLACES = ("password_file", "password_keyring", "password_credential", "password_prompt")


def connect_to(url: str, values: Mapping[str, Any], given: frozenset[str]) -> SourceSpec:
    """Return the source of a URL with its password's place, asking for it where that is wanted.

    Args:
        url: As the user wrote it.
        values: Every option by its name with underscores.
        given: The names of those set on the command line or in the job file.

    Raises:
        UsageError: The URL cannot be read or holds a password. The source does not know an option,
            an option repeats the password, or the prompt has no terminal.
        ConfigError: No such source, or the password's place is not there, cannot be read or can
            be read by others.
    """
    spec = parse_source(url, KINDS, url_form, _password_file(values), values["password_keyring"])
    for name in sorted(given & unknown_to(spec.kind)):
        flag = name.replace("_", "-")
        raise UsageError(f"--{flag} does not apply to {spec.kind} sources", "leave it out")
    if values["password_prompt"]:
        _ask(spec.location)
        spec = parse_source(url, KINDS, url_form)
    for name in table_names(values):
        known_openly(re.split(r'[."]+', name))
    refuse_repeated(spec.location, values)
    return replace(spec, session=SessionOptions(**fields_of(SessionOptions, values)))


def secret_of(source: SourceSpec, values: Mapping[str, Any]) -> SecretReference | None:
    """Return the place of the password of a run's source; None if no place is given.

    Args:
        source: As the run had it.
        values: Every option by its name with underscores.

    Raises:
        UsageError: The prompt has no terminal, or the keyring has no user.
        ConfigError: The password file cannot be read.
    """
    path = _password_file(values)
    if values["password_prompt"]:
        _ask(source.location)
    if values["password_keyring"] is not None:
        return keyring_reference(values["password_keyring"], source.location)
    found = secret_reference(path)
    return None if found.kind == "none" else found


def _password_file(values: Mapping[str, Any]) -> Path | None:
    given = ["--" + key.replace("_", "-") for key in _PLACES if values.get(key)]
    if len(given) > 1:
        raise UsageError(
            f"{given[0]} and {given[1]} exclude each other", "leave one of the two out"
        )
    if values["password_credential"] is not None:
        return credential(values["password_credential"])
    return None if values["password_file"] is None else Path(values["password_file"])


def _ask(whom: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            "--password-prompt needs a terminal, and standard input is not one",
            f"set {PASSWORD_VARIABLE}, or use --password-file",
        )
    with seen_while_waiting():
        answer = click.prompt(f"Password for {whom}", hide_input=True, err=True)
    # The workers are other processes, and read the variable of the reference.
    os.environ[PASSWORD_VARIABLE] = answer
