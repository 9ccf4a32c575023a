"""Where a database is: source URLs, read without a driver and never with a secret inside."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from unloader.errors import ConfigError, UsageError
from unloader.model import SecretReference, SourceSpec

PASSWORD_VARIABLE = "UNLOADER_PASSWORD"

FILE_SCHEMES = ("duckdb", "sqlite")
"""Schemes whose URL is nothing but the absolute path of a file."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_AUTHORITY = re.compile(r"//([^/?#]*)")
_USER_PASSWORD = re.compile(r"(//[^/?#@\s:]*):([^\s]*)@")
_PASSWORD_FIELD = re.compile(
    r"(?i)([?&;:\s]\w*(?:password|passwd|pwd)\s*=\s*)('[^']*'|\{[^}]*\}|[^\s;&'\"]+)"
)
_PORTS = re.compile(r"(\[[^\]]*\]|[^:,]*)(:\d*)?(,(\[[^\]]*\]|[^:,]*)(:\d*)?)*")


def parse_source(
    url: str, kinds: Mapping[str, str], password_file: Path | None = None
) -> SourceSpec:
    """Return the source a URL names, with a reference to where its password is found.

    A password file comes before the variable UNLOADER_PASSWORD; without either the driver's own
    ways (a wallet, `.pgpass`, a service file) are left.

    Args:
        url: As the user wrote it.
        kinds: Each scheme there is, and the kind of source it stands for.
        password_file: Where the password is, if in a file.

    Raises:
        UsageError: Not a URL, a password inside it, or a file path that is not absolute.
        ConfigError: No source has the scheme, or the password file cannot be read.
    """
    match = _SCHEME.match(url)
    if match is None:
        raise UsageError(
            f"{redact(url)!r} is not a source URL", "write for instance " + _example(url)
        )
    if holds_password(url):
        raise UsageError(
            f"the {match[1]}: URL holds a password, which every user of this machine can read "
            "in the list of processes",
            f"take it out and set {PASSWORD_VARIABLE}, or give --password-file or "
            "--password-prompt",
        )
    kind = kinds.get(match[1].lower())
    if kind is None:
        known = ", ".join(sorted(set(kinds.values())))
        raise ConfigError(f"no source is known for {match[1]}:", f"use one of: {known}")
    if kind in FILE_SCHEMES:
        _check_path(kind, url, url[match.end() :])
    return SourceSpec(kind=kind, location=url, secret=secret_reference(password_file))


def secret_reference(password_file: Path | None = None) -> SecretReference:
    """Return where the password is found: the file, else UNLOADER_PASSWORD, else nowhere.

    Raises:
        ConfigError: The password file cannot be read.
    """
    if password_file is not None:
        if not os.access(password_file, os.R_OK) or password_file.is_dir():
            raise ConfigError(
                f"the password file {password_file} cannot be read", "check its path and rights"
            )
        return SecretReference(kind="file", name=str(password_file.absolute()))
    if os.environ.get(PASSWORD_VARIABLE):
        return SecretReference(kind="environment", name=PASSWORD_VARIABLE)
    return SecretReference()


def open_to_others(password_file: Path) -> str | None:
    """Return a warning if users other than the owner may read the password file."""
    mode = password_file.stat().st_mode & 0o777
    if not mode & 0o077:
        return None
    return (
        f"the password file {password_file} is open to other users (mode {mode:03o}); "
        f"close it: chmod 600 {password_file}"
    )


def holds_password(url: str) -> bool:
    """Return whether a URL has a password behind the user or in its key=value pairs."""
    if _PASSWORD_FIELD.search(unquote(url)):
        return True
    authority = _AUTHORITY.search(url)
    if authority is None:
        return False
    user, at, _ = authority[1].rpartition("@")
    if at:
        return ":" in user
    # A slash inside a password ends the authority early; what then looks like a port is none.
    return not _PORTS.fullmatch(authority[1]) and "@" in url[authority.end() :]


def redact(text: str) -> str:
    """Return the text with every password in a URL or a key=value pair replaced by `***`."""
    hidden = _USER_PASSWORD.sub(_hide_user_password, text)
    return _PASSWORD_FIELD.sub(r"\1***", hidden)


def _hide_user_password(match: re.Match[str]) -> str:
    # `host:5432/db?user=a@b` has a port and a later @, and no password.
    port = re.match(r"\d*(,[^/@]*)?[/?#]", match[2])
    return match[0] if port else f"{match[1]}:***@"


def _check_path(kind: str, url: str, rest: str) -> None:
    path = unquote(urlsplit(url).path) if rest.startswith("//") else unquote(rest)
    if rest.startswith("///") and path.strip("/"):
        near = path.lstrip("/")
        if os.path.exists(path) or not os.path.exists(near):
            return
        raise UsageError(
            f"{url} means the file {path}, which is not there",
            f"if {near} of this directory is meant, write {kind}://{os.path.abspath(near)}",
        )
    # `duckdb://data/x.db`: what a URL has for a host is the first part of the path that was meant.
    meant = unquote(rest.lstrip("/"))
    raise UsageError(
        f"{url} does not hold the absolute path of a file",
        f"write {kind}://{os.path.abspath(meant) if meant else '/path/to/file'}",
    )


def _example(text: str) -> str:
    path = Path(text)
    return f"duckdb://{path.absolute()}" if path.is_file() else "duckdb:///path/to/file.db"
