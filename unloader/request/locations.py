"""Source URLs, which are read without a driver and never contain a secret.

No part of a refused source is shown: the text may hold a password. The errors show the forms of a
URL, and the places for a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from unloader.errors import ConfigError, UsageError
from unloader.model import SecretReference, SourceSpec
from unloader.redaction import (
    LONGEST_SECRET,
    PASSWORD_VARIABLE,
    holds_field,
    known_openly,
    learn,
    redact_forms,
)
from unloader.secrets.secret_places import check_private, usual_credential
from writers.files.regular import open_regular, read_regular
from writers.objects.location import is_location


class UrlForm(Struct, frozen=True, kw_only=True):
    """How the URLs of a kind of source are written, as the source declares it."""

    written: str
    """A template for errors, with placeholders in capitals: postgresql://USER@HOST:5432/DATABASE"""
    what: Literal["file", "server", "other"]
    """file: the absolute path of a file or folder. server: an optional user, and a target after
    an @. other: the source interprets it."""
    target: re.Pattern[str] | None = None
    """server: the pattern of a target; other text might be a part of a password."""
    decoded: bool = False
    """server: the target is matched, as the driver reads it, with its %XX decoded."""


_FOREIGN = re.compile("db2|https?|jdbc|mariadb|mongodb|mssql|mysql|odbc|redshift|s3")
"""Schemes that an error may name though we have no such source; others may be a user's name."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_QUOTED = re.compile(r'"[^"]*"')
_PORT = r"(?:[0-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"
_HOST = rf"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\[\]:,;/?#@\s]*)(?::{_PORT}?)?"
HOSTS = rf"{_HOST}(?:[,;]{_HOST})*"
"""Regular expression: hosts with ports, as a target of a server begins."""
_SETTING = re.compile(r"[A-Za-z_][\w.-]*(?:=.*)?", re.DOTALL)
_LOGIN = re.compile(r"(?:[\w+.-]+:)*[^/\s:][^/\s:]*[/:].*@|.*://", re.DOTALL)

PASSWORD_PLACES = f"set {PASSWORD_VARIABLE}, or give --password-file or --password-prompt"


def parse_source(
    url: str,
    kinds: Mapping[str, str],
    form_of: Callable[[str], UrlForm],
    password_file: Path | None = None,
    keyring: str | None = None,
) -> SourceSpec:
    """Return the source a URL names, with a reference to where its password is found.

    A given place comes before UNLOADER_PASSWORD, and that before the usual credential of systemd;
    else the driver's own ways (a wallet, `.pgpass`, a service file) are left. `kinds` has the kind
    of source of each scheme. If the text is not a URL, holds a password, or has a path that is not
    absolute, the error is UsageError; for an unknown scheme it is ConfigError.
    """
    match = _SCHEME.match(url)
    kind = kinds.get(match[1].lower()) if match else None
    if match is None or kind is None:
        raise _unknown(url, match[1].lower() if match else "", kinds, form_of)
    form = form_of(kind)
    rest = url[match.end() :]
    if form.what == "server":
        # The colon of `user:@host` is before no password.
        rest = re.sub(r"\A(//[^/?#@:\s]*):@", r"\1@", rest)
        url = match[0] + rest
    readable = form.what != "server" or rest.startswith("//")
    if readable and holds_password(url):
        raise UsageError(
            f"the {kind}: URL holds a password, which every user of this machine can read in the "
            "list of processes",
            f"take it out and {PASSWORD_PLACES}",
        )
    if form.what == "server" and not _names_server(form, rest):
        raise UsageError(
            f"the {kind}: URL cannot be read, and is not shown since it may hold a password",
            f"write {form.written}, with %40 for an @ within a name; "
            f"for the password {PASSWORD_PLACES}",
        )
    if form.what == "file":
        _check_path(kind, rest)
    # User, hosts, database, parts of a path.
    words = re.split(r"[/@:,;=()\[\]\s]+", rest.partition("?")[0])
    known_openly(tuple(unquote(word) for word in words if word))
    secret = secret_reference(password_file) if keyring is None else keyring_reference(keyring, url)
    return SourceSpec(kind=kind, location=url, secret=secret)


def secret_reference(password_file: Path | None = None) -> SecretReference:
    """Return where the password is: a file, UNLOADER_PASSWORD, a credential of systemd, or nowhere.

    The contents of the file are hidden from now on. If others can read it, it is a ConfigError.
    """
    if password_file is None and not os.environ.get(PASSWORD_VARIABLE):
        password_file = usual_credential()
    if password_file is not None:
        if not password_file.exists():
            # A user who took the option for --password gave the password itself.
            raise ConfigError(
                "--password-file names no file; its value is not shown since it may be the "
                "password",
                "give the path of a file whose first line is the password",
            )
        if not os.access(password_file, os.R_OK) or password_file.is_dir():
            raise ConfigError(
                f"the password file {password_file} cannot be read", "check its path and rights"
            )
        check_private(password_file, "password file")
        if password_file.is_file():  # A pipe could be read once only.
            with suppress(OSError):  # The reader of the password reports it.
                first, _, _ = read_regular(password_file, follow=True).partition(b"\n")
                learn(first[:LONGEST_SECRET].decode(errors="replace").rstrip("\r"))
        return SecretReference(kind="file", name=str(password_file.absolute()))
    if os.environ.get(PASSWORD_VARIABLE):
        return SecretReference(kind="environment", name=PASSWORD_VARIABLE)
    return SecretReference()


def user_of(url: str) -> str:
    """Return the user that an accepted URL of a server names, empty where it names none."""
    head = url.partition("://")[2].partition("?")[0]
    user = head.partition("@(")[0] if "@(" in head else head.rpartition("@")[0]
    return unquote(user).strip("/")


def holds_password(url: str) -> bool:
    """Return whether a URL has a password after the user or in its key=value pairs."""
    return redact_forms(url) != url or holds_field(unquote(url))


def looks_like_source(place: str, known_schemes: Collection[str]) -> bool:
    """Return whether a text where a path belongs is a database's URL or a login.

    `writers.objects.location.Location` refuses credentials in a place of an object store.
    """
    if is_location(place):
        return False
    place = place.removeprefix("pipe:")
    if place.startswith(("/", ".")):
        return False
    scheme = _SCHEME.match(place)
    known = scheme is not None and scheme[1].lower() in known_schemes
    return known or _LOGIN.match(place) is not None or holds_field(place)


def keyring_reference(written: str, url: str) -> SecretReference:
    """Return where `SERVICE` or `SERVICE/USER` is in the keyring; the default user is the URL's."""
    service, _, user = written.rpartition("/")
    if not service:
        service, user = user, user_of(url)
    if not service or not user:
        raise UsageError(
            "--password-keyring does not say whose password it is, and the URL names no user",
            "write --password-keyring SERVICE/USER",
        )
    return SecretReference(kind="keyring", name=f"{service}/{user}")


def database_in(path: str) -> str:
    """Return the kind of the database in a file, by its first bytes; empty without a database."""
    try:
        with open(open_regular(path, follow=True), "rb") as file:
            start = file.read(16)
    except OSError:
        return ""
    if start.startswith(b"SQLite format 3\0"):
        return "sqlite"
    return "duckdb" if start[8:12] == b"DUCK" else ""


def _unknown(
    url: str, scheme: str, kinds: Mapping[str, str], form_of: Callable[[str], UrlForm]
) -> UsageError | ConfigError:
    """Return the error for a text that is not a known URL; it shows only words of this program."""
    foreign = _FOREIGN.fullmatch(scheme) is not None
    if foreign or (scheme and "://" in url):
        whose = f"{scheme}:" if foreign else "the scheme of the source URL"
        known = ", ".join(sorted(set(kinds.values())))
        return ConfigError(f"no source is known for {whose}", f"use one of: {known}")
    if os.path.isfile(url):
        path = os.path.abspath(url)
        if kind := database_in(path):
            return UsageError(
                "the source is a file, and not a source URL", f"write {kind}://{path}"
            )
        return UsageError(
            "the source is a file, and not a database of SQLite or DuckDB",
            "name a database, or a job file",
        )
    known_forms = map(form_of, dict.fromkeys(kinds.values()))
    in_order = sorted(known_forms, key=lambda form: form.what == "file")
    forms = ", ".join(form.written for form in in_order)
    return UsageError(
        "the source is not a source URL, and is not shown since it may hold a password",
        f"write one of {forms}; leave the password out: {PASSWORD_PLACES}",
    )


def _names_server(form: UrlForm, rest: str) -> bool:
    """Return whether what follows the scheme is read by us and by the driver in the same way."""
    if not rest.startswith("//"):
        return False
    head, asked, query = rest[2:].partition("?")
    # A descriptor may hold an @ itself, in a certificate's name for instance.
    user, at, target = head.partition("@(") if "@(" in head else head.rpartition("@")
    target = "(" + target if at == "@(" else target
    plain = _QUOTED.sub("", unquote(user)).strip("/")
    if re.search("[:/]", plain) or "@" in user:
        return False
    pattern = form.target
    if pattern is not None and not pattern.fullmatch(unquote(target) if form.decoded else target):
        return False
    settings = [item for item in query.split("&") if item] if asked else []
    if not all(_SETTING.fullmatch(item) for item in settings):
        return False
    # `//scott:12?x=y@host`: the password has a question mark, and the text after it does not hold
    # settings.
    return bool(at) or all("@" not in item or item.startswith("user=") for item in settings)


def _check_path(kind: str, rest: str) -> None:
    if rest.startswith("//") and re.search("[?#]", rest):
        raise UsageError(
            f"the {kind}: URL has more than a path; it is not shown since it may hold a password",
            f"write {kind}:///path/to/file, with %3F for a ? and %23 for a # in its name",
        )
    path = unquote(urlsplit(f"{kind}:{rest}").path) if rest.startswith("//") else unquote(rest)
    if rest.startswith("///") and path.strip("/"):
        near = path.lstrip("/")
        if os.path.exists(path):
            return
        if os.path.exists(near):
            raise UsageError(
                f"{kind}:{rest} means the file {path}, which does not exist",
                f"if {near} of this directory is meant, write {kind}://{os.path.abspath(near)}",
            )
        if "@" not in path:
            return
        raise UsageError(
            f"the {kind}: URL names a file that does not exist; it is not shown since its @ may "
            "belong to a password",
            f"write {kind}:///path/to/file",
        )
    # `duckdb://data/x.db`: what a URL has for a host is the first part of the path that was meant.
    meant = unquote(rest.lstrip("/"))
    known = bool(meant) and os.path.exists(meant)
    raise UsageError(
        f"the URL {kind}: needs // and the absolute path of a file or folder",
        f"write {kind}://{os.path.abspath(meant) if known else '/path/to/file'}",
    )
