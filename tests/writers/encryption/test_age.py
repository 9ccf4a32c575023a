"""Text encrypted with age: another implementation reads it, and nothing short passes for whole."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from encrypted_files.age import NotDecrypted, decrypted, new_keys

from writers.encryption.age import Decrypted, public_keys
from writers.errors import FormatError
from writers.files.sink import Sink
from writers.model import Compression, Encryption, OutputSpec, TextFormat
from writers.registry import open_encoded_writer

KEYS = new_keys()
CHUNK = 64 * 1024
"""What age encrypts at a time."""


def sink(path: Path, *recipients: str, codec: Any = "none", **options: Any) -> Sink:
    """Return a sink with small buffers."""
    return Sink(
        path,
        compression=Compression(codec=codec),
        buffer_bytes=100_000,
        buffers=2,
        recipients=recipients or (KEYS.public,),
        **options,
    )


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 1_000_000])
def test_another_implementation_reads_files_of_any_size(tmp_path: Path, size: int) -> None:
    """Chunks end at any place, and the checksum is computed from the encrypted bytes."""
    data = os.urandom(size)
    output = sink(tmp_path / "t.age")
    for start in range(0, size, 30_000):
        output.write(data[start : start + 30_000])
    written, _ = output.close()
    file = (tmp_path / "t.age").read_bytes()
    assert (decrypted(file, KEYS.private), len(file)) == (data, written)
    with open(tmp_path / "t.age", "rb") as encrypted:
        assert Decrypted(encrypted, (KEYS.private,)).readall() == data


@pytest.mark.parametrize("direct", [False, True])
def test_frames_are_encrypted_and_each_recipient_reads_them(tmp_path: Path, direct: bool) -> None:
    """The codec comes first, so decryption gives a compressed file."""
    other, data = new_keys(), b"planted value\n" * 40_000
    output = sink(tmp_path / "t", KEYS.public, other.public, codec="gzip", direct_io=direct)
    output.write(data)
    output.settle()
    output.write(data)
    output.close()
    file = (tmp_path / "t").read_bytes()
    for keys in (KEYS, other):
        assert gzip.decompress(decrypted(file, keys.private)) == data * 2
    with pytest.raises(NotDecrypted, match="no recipient"):
        decrypted(file, new_keys().private)


def test_what_is_given_up_has_no_valid_end(tmp_path: Path) -> None:
    """A reader of a pipe cannot take an interrupted output for a whole one."""
    pipe, found = tmp_path / "pipe", bytearray()
    os.mkfifo(pipe)
    reads = threading.Event()

    def read() -> None:
        with open(pipe, "rb") as file:
            reads.set()
            found.extend(file.read())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    keeping = os.open(pipe, os.O_RDWR)
    assert reads.wait(180)
    output = sink(pipe)
    os.close(keeping)
    output.write(bytes(500_000))
    output.settle()
    output.abort()
    reader.join(180)
    assert len(found) > CHUNK
    with pytest.raises(NotDecrypted, match="not the last one"):
        decrypted(bytes(found), KEYS.private)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[: -len(data) // 2],
        lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
        lambda data: data + b"x",
        lambda data: b"id,name\n1,x\n",
    ],
    ids=["a byte less", "half of it", "a bit", "a byte more", "plain text"],
)
def test_what_is_damaged_is_not_read(tmp_path: Path, change: Any) -> None:
    """Neither is a file that ends early, which has no error of its own in a pipe."""
    output = sink(tmp_path / "t")
    output.write(bytes(300_000))
    output.close()
    (tmp_path / "t").write_bytes(change((tmp_path / "t").read_bytes()))
    with (
        open(tmp_path / "t", "rb") as file,
        Decrypted(file, (KEYS.private,)) as opened,
        pytest.raises(ValueError, match="cannot be decrypted"),
    ):
        opened.readall()


def test_keys_that_are_none_are_refused_and_not_shown(tmp_path: Path) -> None:
    """A recipient before there is a file, for it may be a private key."""
    for text in (KEYS.private, KEYS.public[:-1], "age1x", ""):
        with pytest.raises(FormatError, match="recipient 2 is not a public key") as caught:
            sink(tmp_path / "t", KEYS.public, text)
        assert not text or text not in str(caught.value)
    assert not (tmp_path / "t").exists()
    assert public_keys((KEYS.private,)) == (KEYS.public,)
    with pytest.raises(FormatError, match="private key of age") as caught:
        public_keys((KEYS.private[:-1],))
    assert KEYS.private[:-1] not in str(caught.value)


def test_text_that_arrives_ready_is_encrypted_too(tmp_path: Path) -> None:
    """The route of databases that make the text themselves."""
    spec = OutputSpec(
        directory=str(tmp_path),
        format=TextFormat(),
        compression=Compression(),
        encryption=Encryption(recipients=(KEYS.public,)),
    )
    writer = open_encoded_writer(spec, "t", b"id\n")
    writer.write(b"1\n2\n")
    (file,) = writer.close(2)
    assert file.path == "t.csv.age.part"
    assert decrypted((tmp_path / file.path).read_bytes(), KEYS.private) == b"id\n1\n2\n"
