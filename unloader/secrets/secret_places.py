"""Where secrets are found: private files, credentials of systemd, and the keyring.

A file with a secret must be unreadable for other users. A file is refused if its rights let its
group or everybody in, as `ssh` and libpq refuse a key. Four exceptions follow from how service
managers hand secrets over:

- The file is root's, and its group may only read it. So are systemd's credentials, whose access
  list shows as rights of the group, and volumes of Kubernetes with an `fsGroup`.
- A directory on the way to the file admits only its owner.
- The file is root's, only readable, and on a file system in memory that is mounted read-only. So
  are the secrets of Docker and Kubernetes.
- It is not a regular file: a pipe of the shell has no rights that matter.

A unit of systemd with `LoadCredential=unloader-password:/etc/unloader/password` finds the file
`unloader-password` in `$CREDENTIALS_DIRECTORY`, which only the service can enter.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from unloader.errors import ConfigError, UsageError
from unloader.redaction import LONGEST_SECRET, learn
from writers.files.regular import read_named

DIRECTORY = "CREDENTIALS_DIRECTORY"
"""The variable that systemd sets."""

USUAL_NAME = "unloader-password"
"""The credential that is used without being asked for."""

USUAL_PARQUET_KEY = "unloader-parquet-key"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,200}")

OTHERS = 0o077
"""Rights of the group and of everybody."""

_MEMORY = frozenset(("tmpfs", "ramfs"))


def credential(name: str) -> Path:
    """Return the file of a credential of this service."""
    if not _NAME.fullmatch(name):
        # Not shown: who took the option for --password gave the password itself.
        raise UsageError(
            "--password-credential is not the name of a credential",
            f"give the name in LoadCredential=, such as {USUAL_NAME}",
        )
    directory = os.environ.get(DIRECTORY)
    if not directory:
        raise ConfigError(
            f"--password-credential needs {DIRECTORY}, which systemd sets for a service that has "
            "credentials",
            "put LoadCredential= into the unit, or use --password-file",
        )
    path = Path(directory) / name
    if not path.is_file():
        raise ConfigError(
            f"{DIRECTORY} does not have the credential that --password-credential names",
            "give the name in LoadCredential= of the unit",
        )
    return path


def usual_credential(name: str = USUAL_NAME) -> Path | None:
    """Return the file of the credential with a usual name; None if it does not exist."""
    directory = os.environ.get(DIRECTORY)
    path = Path(directory, name) if directory else None
    return path if path is not None and path.is_file() else None


def secret_in(path: Path, what: str, hint: str) -> str:
    """Return the text of a file without its last newline, and hide it in all output from now on.

    The name of a missing file is not shown, because it may be the secret. `what` names the file in
    an error, and `hint` advises if it cannot be read.
    """
    check_private(path, what)
    try:
        secret = read_named(path).decode().replace("\r\n", "\n").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        named = f"{what} {path}" if os.path.exists(path) else what
        # Not from the system's error, which has the name in it.
        raise ConfigError(f"the {named} cannot be read: {reason}", hint) from None
    if len(secret) > LONGEST_SECRET:
        raise ConfigError(
            f"the {what} {path} has more than {LONGEST_SECRET:,} characters",
            "give a file that contains only the secret",
        )
    learn(secret)
    return secret


@lru_cache(maxsize=8)
def keyring_password(service: str, user: str) -> str:
    """Return the password that the keyring has for a user of a service; asked once in a process."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError as error:
        raise ConfigError(
            f"the module {error.name!r} is not installed", "pip install 'unloader[keyring]'"
        ) from error
    try:
        password: str | None = keyring.get_password(service, user)
    except KeyringError as error:
        raise ConfigError(
            f"the keyring did not answer: {type(error).__name__}: {error}",
            "unlock it; `keyring diagnose` shows which keyring is used",
        ) from error
    if not password:
        raise ConfigError(
            f"the keyring has no password of {user} for {service}",
            f"keyring set {shlex.quote(service)} {shlex.quote(user)}",
        )
    return password


def proof_of(secret: bytes, salt: str = "") -> str:
    """Return a salted hash that takes long enough to make guessing the secret hopeless."""
    salt = salt or os.urandom(16).hex()
    found = hashlib.scrypt(secret, salt=bytes.fromhex(salt), n=2**14, r=8, p=1, dklen=32)
    return f"{salt}:{found.hex()}"


@lru_cache(maxsize=16)
def is_proof_of(secret: bytes, proof: str) -> bool:
    """Return whether a proof was made of this secret, once in a process: the hash takes long."""
    salt = proof.partition(":")[0]
    return bool(salt) and proof_of(secret, salt) == proof


def check_private(path: Path, what: str) -> None:
    """Refuse a file that another user can read or change. A missing file is not refused."""
    try:
        real = Path(os.path.realpath(path))
        status = real.stat()
    except OSError:
        return  # Reading it will fail with a better error.
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & OTHERS:
        return
    with suppress(OSError):
        # A directory on the way may keep others out.
        if any(not each.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH) for each in real.parents):
            return
    if status.st_uid == 0:
        # Root or a service manager has created it for this process.
        rights = status.st_mode & OTHERS
        is_readable = not rights & ~(stat.S_IRGRP | stat.S_IROTH)
        if rights == stat.S_IRGRP or (is_readable and _is_read_only_memory(real, status)):
            return
    mode = stat.S_IMODE(status.st_mode)
    raise ConfigError(
        f"other users can read the {what} {path} (mode {mode:03o})",
        f"chmod 600 {shlex.quote(str(path))}; if other users could read it until now, change the "
        "secret",
    )


def _is_read_only_memory(real: Path, status: os.stat_result) -> bool:
    """Return whether the file is on a tmpfs that is mounted read-only."""
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    try:
        read_only = bool(os.statvfs(real).f_flag & os.ST_RDONLY)
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    # The third field is the device, and the first one after the dash is the type: proc(5).
    lines = (line.partition(" - ") for line in mounts)
    kinds = {rest.split(" ")[0] for fields, _, rest in lines if fields.split(" ")[2:3] == [device]}
    return read_only and bool(kinds & _MEMORY)
