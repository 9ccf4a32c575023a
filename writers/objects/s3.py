"""S3 through boto3: profiles, the client that asks, its errors, and copies of large objects."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from writers.errors import FormatError, StoreFailed, WriteError
from writers.objects.location import Location, addressing, s3_endpoint

MOST_CONNECTIONS = 16
"""Of one process to one store."""
_making = threading.Lock()
"""A session makes one client at a time."""
_REQUEST_SECONDS = 90
"""Without a byte of an answer."""


def credentials_of_profile(store: Location) -> Any:
    """Return what gives obstore the credentials that boto3 finds, and renews them.

    Raises:
        FormatError: boto3 is missing.
    """
    session = _session(store.option("profile"))
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider(session)
    except ValueError:
        raise _no_credentials(store) from None


def region_of_profile(store: Location) -> str:
    """Return the region that is configured, empty if none is."""
    return _session(store.option("profile")).region_name or ""


def copy_large(store: Location, source: str, target: str) -> None:
    """Copy an object within its bucket, in parts where it is large, by the server itself.

    Raises:
        StoreFailed: The store refused.
    """
    extra = marks(store)
    if store.tags:
        # A copy in parts does not take those of the original with it.
        extra["TaggingDirective"] = "REPLACE"
    with translated("copy in", store):
        client(store).copy(
            {"Bucket": store.bucket, "Key": source}, store.bucket, target, ExtraArgs=extra
        )


def marks(store: Location) -> dict[str, str]:
    """Return what a new object is to have, as a request says it."""
    found = {}
    for option, name in (
        ("storage_class", "StorageClass"),
        ("sse", "ServerSideEncryption"),
        ("kms_key", "SSEKMSKeyId"),
    ):
        if value := store.option(option):
            found[name] = value
    if tags := store.tags:
        found["Tagging"] = urlencode(tags)
    return found


def client(store: Location, *, sends_parts: bool = False) -> Any:
    """Return a client, the same one each time in a process; any thread may use it.

    Args:
        store: Anywhere in it.
        sends_parts: The requests have bodies whose checksums are signed with their headers: so the
            bodies are not read once more for the signature.

    Raises:
        FormatError: boto3 is missing, or the profile is.
    """
    with _making:
        return _client(store.store, sends_parts, os.getpid())


def load() -> None:
    """Load what a client needs, for processes that are forked from this one. Nobody is asked.

    Raises:
        FormatError: boto3 is missing, or a profile that the environment names is.
    """
    # The session keeps the description of S3 that it reads. With these credentials it looks for no
    # others: a client that asks the store is made later, with the credentials of that time.
    unused = "not used"
    _session("").client(
        "s3", region_name="us-east-1", aws_access_key_id=unused, aws_secret_access_key=unused
    )


@lru_cache(maxsize=16)
def _client(store: Location, sends_parts: bool, _: int) -> Any:
    from botocore.config import Config

    s3: dict[str, Any] = {"addressing_style": addressing(store)}
    if sends_parts:
        s3["payload_signing_enabled"] = False

    session = _session(store.option("profile"))
    return session.client(
        "s3",
        endpoint_url=s3_endpoint(store) or None,
        region_name=store.option("region") or session.region_name or "us-east-1",
        config=Config(
            retries={"mode": "standard", "max_attempts": 8},
            connect_timeout=10,
            read_timeout=_REQUEST_SECONDS,
            max_pool_connections=MOST_CONNECTIONS,
            # Checksums are what this room says; the library adds none of its own.
            request_checksum_calculation="when_required",
            s3=s3,
        ),
    )


@lru_cache(maxsize=16)
def _session(profile: str) -> Any:
    try:
        import boto3
        from botocore.exceptions import ProfileNotFound
    except ImportError:
        raise FormatError(
            "profiles and roles of S3, and the removal of unfinished uploads, need the package "
            "boto3.",
            "install it with: pip install 'unloader[cloud]'.",
        ) from None
    try:
        return boto3.Session(profile_name=profile or None)
    except ProfileNotFound as error:
        raise FormatError(f"{error}.", "check the profiles in ~/.aws/config.") from None


def _no_credentials(store: Location) -> FormatError:
    return FormatError(
        f"no credentials for {store} were found.",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile (AWS_PROFILE), or give "
        "this machine a role.",
    )


@contextmanager
def translated(verb: str, location: Location, but: Any = ()) -> Iterator[None]:
    """Turn errors of boto3 in the block into our own, except those of the classes `but`.

    Raises:
        StoreFailed: Another attempt may succeed.
        WriteError: The store refused.
    """
    try:
        yield
    except Exception as error:
        ours = not type(error).__module__.startswith(("botocore", "boto3"))
        if ours or isinstance(error, but):
            raise
        raise error_of(verb, location, error) from error


def error_of(verb: str, location: Location, error: BaseException) -> WriteError:
    """Return our own error for one of boto3, met while something was done."""
    code = code_of(error)
    kind = WriteError if code in _REFUSALS else StoreFailed
    hint = _REFUSALS.get(code, "check the store, its limits and the network.")
    text = f"cannot {verb} {str(location).partition('?')[0]}: {error}"
    return kind(f"{text.rstrip('. ')}.", hint)


def code_of(error: BaseException) -> str:
    """Return what the store called it, or the library."""
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", "")) or type(error).__name__


_HINTS: dict[str, tuple[str, ...]] = {
    "give these credentials the permission to write and delete there, and to end uploads.": (
        "AccessDenied",
        "AllAccessDisabled",
        "403",
        "MethodNotAllowed",
    ),
    "check the name of the bucket, and create it if it is missing.": (
        "NoSuchBucket",
        "InvalidBucketName",
    ),
    "check the credentials of this process.": (
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "NoCredentialsError",
        "PartialCredentialsError",
    ),
    "check the options of the place.": (
        "InvalidArgument",
        "InvalidRequest",
        "InvalidStorageClass",
        "InvalidTag",
        "NotImplemented",
        "PermanentRedirect",
        "AuthorizationHeaderMalformed",
    ),
}
_REFUSALS = {code: hint for hint, codes in _HINTS.items() for code in codes}
"""What the store goes on refusing, and what is to be done."""
