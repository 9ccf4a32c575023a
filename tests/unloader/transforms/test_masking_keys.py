"""Keys of masks: their places, and refusals that do not show them."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

import pytest

from unloader.errors import ConfigError, UsageError
from unloader.redaction import redact
from unloader.secrets.secret_places import proof_of
from unloader.transforms.masking_keys import key_place, masking_key, masking_keys, with_proof
from unloader.transforms.model import MaskingKey

KEY = bytes(range(100, 132))
CODED = base64.b64encode(KEY).decode()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("UNLOADER_MASKING_KEY_CUSTOMERS", raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    return place


def test_a_key_is_found_in_every_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, a variable, a credential, and the usual variable and credential."""
    (home / "key").write_text(CODED + "\n")
    assert masking_key(key_place("customers", f"file:{home}/key")) == KEY
    monkeypatch.setenv("OTHER", CODED)
    assert masking_key(key_place("customers", "env:OTHER")) == KEY
    with pytest.raises(ConfigError, match="UNLOADER_MASKING_KEY_CUSTOMERS"):
        key_place("customers")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(home))
    assert masking_key(key_place("customers", "credential:key")) == KEY
    (home / "unloader-masking-key-customers").write_text(CODED)
    assert masking_key(key_place("customers")) == KEY
    monkeypatch.setenv("UNLOADER_MASKING_KEY_CUSTOMERS", base64.b64encode(bytes(16)).decode())
    assert masking_keys([key_place("customers")]) == {"customers": bytes(16)}


def test_a_keyring_is_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`keyring:SERVICE/USER`, by the package `keyring` and a keyring in a file."""
    import keyring
    from keyrings.alt.file import PlaintextKeyring

    own = PlaintextKeyring()
    own.file_path = str(home / "ring")
    own.set_password("masks", "customers", CODED)
    before = keyring.get_keyring()
    keyring.set_keyring(own)
    try:
        assert masking_key(key_place("customers", "keyring:masks/customers")) == KEY
    finally:
        keyring.set_keyring(before)


def test_an_open_file_is_refused(home: Path) -> None:
    """As with passwords, if no directory keeps others out."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        path = Path(made, "key")
        path.write_text(CODED)
        path.chmod(0o644)
        with pytest.raises(ConfigError, match="chmod 600"):
            masking_key(key_place("customers", f"file:{path}"))


@pytest.mark.parametrize(
    "text", ["", "not base64!", CODED[:-5], base64.b64encode(b"short").decode()]
)
def test_what_is_no_key_is_refused_and_not_shown(home: Path, text: str) -> None:
    """The error has the key's name, and nothing of the file."""
    (home / "key").write_text(text)
    with pytest.raises(ConfigError, match="customers") as raised:
        masking_key(key_place("customers", f"file:{home}/key"))
    assert not text or text not in str(raised.value)


@pytest.mark.parametrize("place", [CODED, "file:", "env:a b", "keyring:x", "credential:a/b"])
def test_a_place_of_another_form_is_refused_and_not_shown(home: Path, place: str) -> None:
    """Who took the option for the key itself does not find the key in the error."""
    with pytest.raises(UsageError) as raised:
        key_place("customers", place)
    assert place == "file:" or place not in str(raised.value)
    with pytest.raises(UsageError, match="lower case") as raised:
        key_place(CODED)
    assert CODED not in str(raised.value)


def test_a_proof_knows_another_key(home: Path) -> None:
    """It is salted, holds nothing of the key, and a key that was replaced is an error."""
    path = home / "key"
    path.write_text(CODED)
    proved = with_proof(key_place("customers", f"file:{path}"))
    assert masking_key(proved) == KEY
    assert with_proof(proved) == proved
    assert proof_of(KEY) != proved.proof
    assert CODED not in repr(proved)
    assert KEY.hex() not in repr(proved)
    path.write_text(base64.b64encode(bytes(32)).decode())
    with pytest.raises(ConfigError, match="not the key that"):
        masking_key(proved)


def test_a_key_that_was_read_is_hidden(home: Path) -> None:
    """In every text that leaves the program."""
    (home / "key").write_text(CODED)
    masking_key(MaskingKey(name="customers", kind="file", place=str(home / "key")))
    assert CODED not in redact(f"it is {CODED}!")
