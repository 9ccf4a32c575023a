"""Keys of encrypted files: their places, and refusals that do not show them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from encrypted_files.age import new_keys

from unloader.errors import ConfigError
from unloader.model import EncryptionOptions, OutputOptions, SecretReference
from unloader.secrets.encryption_keys import (
    check_identities,
    identities,
    identity_reference,
    parquet_key,
    parquet_key_reference,
    with_parquet_key,
)
from unloader.secrets.secret_places import is_proof_of, proof_of
from writers.model import Compression, ParquetFormat

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
