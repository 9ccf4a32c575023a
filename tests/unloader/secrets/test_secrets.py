"""Secrets in files, keyrings and keys: accepted places, and refusals that show none."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from encrypted_files.age import new_keys

from unloader.errors import ConfigError
from unloader.model import EncryptionOptions, OutputOptions, SecretReference
from unloader.secrets.keys import (
    check_identities,
    identities,
    identity_reference,
    parquet_key,
    parquet_key_reference,
    with_parquet_key,
)
from unloader.secrets.secret_places import check_private, is_proof_of, proof_of
from writers.model import Compression, ParquetFormat

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that every user may enter, unlike the directories of pytest."""
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def secret(directory: Path, mode: int, owner: int | None = None) -> Path:
    path = directory / "a secret"
    path.write_text("Hunter2Xyzzy")
    if os.geteuid() == 0:
        os.chown(path, NOBODY if owner is None else owner, -1)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o602, 0o604, 0o666, 0o440, 0o610])
def test_any_right_of_others_is_refused(directory: Path, mode: int) -> None:
    """Reading, writing or executing, by the group or by everybody; the hint is the remedy."""
    path = secret(directory, mode)
    with pytest.raises(ConfigError, match=f"other users can read .* .mode {mode:03o}") as caught:
        check_private(path, "password file")
    assert f"chmod 600 '{path}'" in caught.value.hint
    path.chmod(0o600)
    check_private(path, "password file")


def is_accepted(path: Path) -> bool:
    try:
        check_private(path, "password file")
    except ConfigError:
        return False
    return True


def test_a_link_counts_as_what_it_leads_to(directory: Path) -> None:
    """A symbolic link has no separate rights."""
    link = directory / "link"
    link.symlink_to(secret(directory, 0o644))
    assert not is_accepted(link)
    (directory / "a secret").chmod(0o400)
    assert is_accepted(link)


@pytest.mark.parametrize(("mode", "accepted"), [(0o700, True), (0o710, False), (0o701, False)])
def test_a_directory_may_keep_others_out(directory: Path, mode: int, accepted: bool) -> None:
    """In a directory that only its owner may enter, the rights of the file do not matter."""
    inner = directory / "closed" / "inner"
    inner.mkdir(parents=True)
    path = secret(inner, 0o644)
    inner.parent.chmod(mode)
    assert is_accepted(path) == accepted


@needs_root
@pytest.mark.parametrize(
    ("mode", "accepted"), [(0o640, True), (0o440, True), (0o660, False), (0o444, False)]
)
def test_roots_file_may_be_read_by_its_group(directory: Path, mode: int, accepted: bool) -> None:
    """As libpq has it for keys: service managers hand secrets to a service through its group."""
    assert is_accepted(secret(directory, mode, owner=0)) == accepted


def test_what_is_no_file_is_left_to_whoever_reads_it(directory: Path) -> None:
    """A pipe of a shell, a directory, and a missing file."""
    os.mkfifo(directory / "pipe", 0o666)
    os.chmod(directory / "pipe", 0o666)
    for name in ("pipe", ".", "nothing"):
        check_private(directory / name, "password file")


OWN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount")
MOUNTED = """
import os, subprocess, sys
from pathlib import Path
from unloader.errors import ConfigError
from unloader.secrets.secret_places import check_private

place = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "secrets", place], check=True)
(place / "password").write_text("Hunter2Xyzzy")
(place / "password").chmod(0o444)
for options in ("remount,rw", "remount,ro"):
    subprocess.run(["mount", "-o", options, place], check=True)
    try:
        check_private(place / "password", "password file")
        print(options, "accepted")
    except ConfigError:
        print(options, "refused")
"""


def test_a_secret_of_a_container_is_accepted(directory: Path) -> None:
    """Docker and Kubernetes put root's files, readable by all, on a read-only mount in memory."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare to make a mount with")
    done = subprocess.run(
        [*OWN_MOUNTS, sys.executable, "-c", MOUNTED, str(directory)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    if "Operation not permitted" in done.stderr or "permission denied" in done.stderr:
        pytest.skip("this machine lets nobody make a mount of its own")
    assert done.stdout.splitlines() == ["remount,rw refused", "remount,ro accepted"], done.stderr


KEYRING = {"PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring"}
PROGRAM = """
import sys
from unloader.errors import ConfigError
from unloader.model import SecretReference, SourceSpec
from unloader.redaction import redact
from unloader.sources.registry import password_of

reference = SecretReference(kind="keyring", name=sys.argv[1])
spec = SourceSpec(kind="postgresql", location="postgresql://etl@db01/x", secret=reference)
try:
    found = password_of(spec)
    print(found, redact(f"it is {found}."))
except ConfigError as error:
    print(f"{error.message} | {error.hint}")
"""


def said_by(program: str, name: str, **variables: str) -> str:
    """Return the output of a process that looks for a password."""
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", program, name],
        env={**os.environ, **variables, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ask(home: Path, name: str) -> str:
    """Return the output of a process with a keyring that has one password."""
    variables = {"HOME": str(home), "XDG_DATA_HOME": str(home), **KEYRING}
    subprocess.run(
        [sys.executable, "-m", "keyring", "set", "https://db01/sales", "etl"],
        input="Hunter2Xyzzy\n",
        env={**os.environ, **variables},
        text=True,
        check=True,
        capture_output=True,
    )
    return said_by(PROGRAM, name, **variables)


def test_a_password_is_found_and_hidden(tmp_path: Path) -> None:
    """What `keyring set` stored is the password, and is in no text from then on."""
    said = ask(tmp_path, "https://db01/sales/etl")
    assert said == "Hunter2Xyzzy it is ***."


@pytest.mark.parametrize("name", ["https://db01/sales/other", "sales/etl"])
def test_a_password_that_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    """The error names service and user, and the command that stores the password."""
    said = ask(tmp_path, name)
    service, _, user = name.rpartition("/")
    assert f"no password of {user} for {service} | keyring set {service} {user}" in said


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    """Without the extra, the error has the command that installs it."""
    (tmp_path / "keyring.py").write_text("raise ModuleNotFoundError('', name='keyring')\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"
    said = said_by(program, "sales/etl")
    assert "'keyring' is not installed | pip install 'unloader[keyring]'" in said


KEY = bytes(range(200, 232))
"""Equal in every process of the suite, since names of tests are made from it."""
CODED = base64.b64encode(KEY).decode()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("UNLOADER_PARQUET_KEY", raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


def test_a_key_is_found_in_three_places(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file comes before the variable, and that before the credential."""
    assert parquet_key_reference(None) == SecretReference()
    (places / "unloader-parquet-key").write_text(base64.b64encode(bytes(16)).decode() + "\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(places))
    assert parquet_key(parquet_key_reference(None)) == bytes(16)
    monkeypatch.setenv("UNLOADER_PARQUET_KEY", base64.b64encode(bytes(24)).decode())
    assert parquet_key(parquet_key_reference(None)) == bytes(24)
    (places / "key").write_text(CODED)
    assert parquet_key(parquet_key_reference(places / "key")) == KEY


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "0123456789abcdef",
        CODED[:-5],
        CODED + "!",
        "näht",
        base64.b64encode(b"x" * 33).decode(),
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(places: Path, text: str) -> None:
    """The message has the form of a key."""
    (places / "key").write_text(text)
    with pytest.raises(ConfigError) as caught:
        parquet_key(parquet_key_reference(places / "key"))
    assert not text.strip() or text.strip() not in str(caught.value)


def test_private_keys_are_read_as_age_writes_them(places: Path) -> None:
    """Comments and empty lines are passed over; one of the keys must be a recipient's."""
    first, second = new_keys(), new_keys()
    path = places / "keys"
    path.write_text(
        f"# created: today\n# public key: {first.public}\n{first.private}\n\n{second.private}\n"
    )
    found = identities(identity_reference(path))
    assert found == (first.private, second.private)
    check_identities(found, (new_keys().public, second.public))
    with pytest.raises(ConfigError, match="belongs to a recipient") as caught:
        check_identities(found, (new_keys().public,))
    assert "SECRET" not in str(caught.value)
    path.write_text("# nothing\n")
    with pytest.raises(ConfigError, match="not contain a private key"):
        identities(identity_reference(path))
    assert identities(identity_reference(None)) == ()


def test_a_proof_tells_keys_apart_and_is_never_the_same() -> None:
    """It has a salt, so that two runs with one key do not show that they have."""
    proof = proof_of(KEY)
    assert (is_proof_of(KEY, proof), is_proof_of(bytes(32), proof)) == (True, False)
    assert proof != proof_of(KEY)
    assert not is_proof_of(KEY, "")


def test_a_key_that_was_exchanged_is_refused(places: Path) -> None:
    """One run is encrypted with one key, also if the file is replaced meanwhile."""
    (places / "key").write_text(CODED)
    options = EncryptionOptions(
        key=parquet_key_reference(places / "key"), key_name="nightly", key_proof=proof_of(KEY)
    )
    spec = OutputOptions(destination="", format=ParquetFormat(), encryption=options).spec(
        "", ParquetFormat(), Compression()
    )
    assert spec.encryption.key is None
    assert with_parquet_key(spec, options).encryption.key == KEY
    (places / "key").write_text(base64.b64encode(bytes(32)).decode())
    with pytest.raises(ConfigError, match="is not the key that") as caught:
        with_parquet_key(spec, options)
    assert "nightly" in caught.value.hint
