"""What can be encrypted, checked before a run reads or connects to anything."""

from __future__ import annotations

from msgspec.structs import replace

from unloader.errors import ConfigError, UsageError
from unloader.model import COMPARING, EncryptionOptions, Request
from unloader.storage.place_names import KEPT, destination_kind, is_one_stream
from writers.model import Compression, ParquetFormat


def checked_encryption(request: Request) -> EncryptionOptions | None:
    """Return how the files of a run are encrypted, with the proof of the key.

    Raises:
        UsageError: Something that was asked for cannot be had of encrypted files.
        ConfigError: A key is missing, cannot be read or is none.
        FormatError: A library is missing, or a recipient is none.
    """
    options = request.output.encryption
    if options is None:
        return None
    if not isinstance(request.output.compression, Compression):
        raise UsageError(
            "--compression measures a sample, which works only with files that are not encrypted",
            "name a codec: --compression zstd",
        )
    if isinstance(request.output.format, ParquetFormat):
        return _checked_parquet(options, request.output.format)
    _check_text(options, request)
    return options


def _checked_parquet(options: EncryptionOptions, parquet: ParquetFormat) -> EncryptionOptions:
    from unloader.secrets.encryption_keys import parquet_key
    from unloader.secrets.secret_places import proof_of
    from writers.encryption.parquet import check_format

    if not options.keyed:
        raise UsageError("Parquet files are encrypted with a key", "give --parquet-key-file")
    check_format(parquet)
    return replace(options, key_proof=proof_of(parquet_key(options.key)))


def _check_text(options: EncryptionOptions, request: Request) -> None:
    from writers.encryption.age import check_recipients

    if options.keyed or not options.recipients:
        raise UsageError("text is encrypted for recipients", "give --encrypt-to")
    check_recipients(options.recipients)
    kind = destination_kind(request.output.destinations)
    if request.output.file_per == "table" and kind in KEPT:
        raise UsageError(
            "--file-per table joins the files of the work units, but encrypted text cannot be "
            "joined",
            "leave --file-per out, or use --format parquet with --parquet-key-file",
        )
    if is_one_stream(kind):
        raise UsageError(
            "--encrypt-to encrypts each work unit separately, but one stream contains all units",
            "encrypt the stream: unloader run ... --to - | age -r RECIPIENT",
        )
    if kind in KEPT and request.verify in COMPARING:
        _check_identities(options, request.verify)


def _check_identities(options: EncryptionOptions, level: str) -> None:
    from unloader.secrets.encryption_keys import check_identities, identities

    if options.identity.kind == "none":
        raise ConfigError(
            f"--verify {level} reads the files again, but they are encrypted",
            "give the private key of a recipient: --decrypt-with FILE; or use --verify count",
        )
    check_identities(identities(options.identity), options.recipients)
