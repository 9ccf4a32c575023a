"""S3 through boto3: profiles, the client that asks, its errors, and copies of large objects."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from writers.errors import FormatError, StoreFailed, WriteError
from writers.objects.endpoints import addressing, s3_endpoint
from writers.objects.location import Location

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
    # Credentials that are given here are looked for nowhere. A client that asks is made where it
    # is needed: it has them as they are by then.
    nobody = "not used"
    _new_session("").client(
        "s3", region_name="us-east-1", aws_access_key_id=nobody, aws_secret_access_key=nobody
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
    return _new_session(profile)


def _new_session(profile: str) -> Any:
    try:
        import boto3
        import botocore.session
        from botocore.exceptions import ProfileNotFound
    except ImportError:
        raise FormatError(
            "profiles and roles of S3, and the removal of unfinished uploads, need the package "
            "boto3.",
            "install it with: pip install 'unloader[cloud]'.",
        ) from None
    core = botocore.session.Session()
    core.register_component("data_loader", _loader())
    try:
        return boto3.Session(profile_name=profile or None, botocore_session=core)
    except ProfileNotFound as error:
        raise FormatError(f"{error}.", "check the profiles in ~/.aws/config.") from None


@lru_cache(maxsize=1)
def _loader() -> Any:
    """Return what reads the descriptions of services that the library has, and keeps them."""
    from botocore.loaders import create_loader

    return create_loader()


def _no_credentials(store: Location) -> FormatError:
    return FormatError(
        f"no credentials for {store} were found.",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile (AWS_PROFILE), or give "
        "this machine a role.",
    )


class translated:
    """Turns the errors of boto3 into our own, all but one kind where that is named."""

    def __init__(self, verb: str, location: Location, but: Any = ()) -> None:
        self._verb, self._location, self._but = verb, location, but

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Raise WriteError for an error of boto3: StoreFailed where trying again may help."""
        if error is None or isinstance(error, self._but):
            return
        if not type(error).__module__.startswith(("botocore", "boto3")):
            return
        raise error_of(self._verb, self._location, error) from error


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
