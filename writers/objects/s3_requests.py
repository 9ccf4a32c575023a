"""Requests to S3 that obstore does not have, through boto3.

They are the credentials of profiles, copies of large objects, and uploads in parts. Readers of
objects do not see an upload before its completion. Any process can complete it or abort it.

A request raises StoreFailed if another attempt may succeed, and WriteError if the store refuses. A
FormatError means that boto3, a profile or its credentials are missing.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import urlencode

from writers.errors import FormatError, StoreFailed, Superseded, WriteError
from writers.model import UncompletedUpload, UploadedPart
from writers.objects.location import Location, addressing, s3_endpoint

MOST_CONNECTIONS = 16
"""Of one process to one store."""
_making = threading.Lock()
"""A session can make only one client at a time."""
_REQUEST_SECONDS = 90
"""Without a byte of an answer."""
_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between requests while the store still works on an earlier one. botocore does not repeat
a request after this answer."""


def credentials_of_profile(store: Location) -> Any:
    """Return obstore's provider of the credentials that boto3 finds and renews."""
    session = _session(store.option("profile"))
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider(session)
    except ValueError:
        raise FormatError(
            f"no credentials for {store} were found.",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile (AWS_PROFILE), or "
            "give this machine a role.",
        ) from None


def region_of_profile(store: Location) -> str:
    return _session(store.option("profile")).region_name or ""


def client(store: Location, *, sends_parts: bool = False) -> Any:
    """Return a store's client for all threads; `sends_parts` signs checksums and not bodies."""
    with _making:
        return _client(store.store, sends_parts, os.getpid())


def load() -> None:
    """Load what a client needs, for processes that are forked from this one; send no request."""
    # The session keeps the description of S3 that it reads. With these credentials it looks for no
    # others: a client that sends requests is made later, with the credentials of that time.
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
            # This module computes the checksums; the library adds none.
            request_checksum_calculation="when_required",
            s3=s3,
        ),
    )


@lru_cache(maxsize=16)
def _session(profile: str) -> Any:
    import boto3
    from botocore.exceptions import ProfileNotFound

    try:
        return boto3.Session(profile_name=profile or None)
    except ProfileNotFound as error:
        raise FormatError(f"{error}.", "check the profiles in ~/.aws/config.") from None


@contextmanager
def _translated(verb: str, location: Location, but: Any = ()) -> Iterator[None]:
    """Turn errors of boto3 in the block into our own, except errors of the classes `but`."""
    try:
        yield
    except Exception as error:
        ours = not type(error).__module__.startswith(("botocore", "boto3"))
        if ours or isinstance(error, but):
            raise
        raise _error_of(verb, location, error) from error


def _error_of(verb: str, location: Location, error: BaseException) -> WriteError:
    hint = _REFUSALS.get(_code_of(error))
    text = f"cannot {verb} {str(location).partition('?')[0]}: {error}".rstrip(". ")
    if hint is None:
        return StoreFailed(f"{text}.", "check the store, its limits and the network.")
    return WriteError(f"{text}.", hint)


def _code_of(error: BaseException) -> str:
    """Return the code of a store's answer, or else the class of the error."""
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", "")) or type(error).__name__


_HINTS = {
    "give these credentials the permission to write and delete there, and to end uploads.": (
        "AccessDenied AllAccessDisabled 403 MethodNotAllowed"
    ),
    "check the name of the bucket, and create it if it is missing.": (
        "NoSuchBucket InvalidBucketName"
    ),
    "check the credentials of this process.": (
        "InvalidAccessKeyId SignatureDoesNotMatch ExpiredToken InvalidToken NoCredentialsError "
        "PartialCredentialsError"
    ),
    "check the options of the place.": (
        "InvalidArgument InvalidRequest InvalidStorageClass InvalidTag NotImplemented "
        "PermanentRedirect AuthorizationHeaderMalformed"
    ),
}
_REFUSALS = {code: hint for hint, codes in _HINTS.items() for code in codes.split()}
"""Codes of answers that a further request would get again, and the advice for them."""


def copy_large(store: Location, source: str, target: str) -> None:
    """Let the server copy an object within its bucket, in parts if it is large."""
    extra = _marks(store)
    if store.tags:
        # A copy in parts does not take the tags of the original with it.
        extra["TaggingDirective"] = "REPLACE"
    with _translated("copy in", store):
        client(store).copy(
            {"Bucket": store.bucket, "Key": source}, store.bucket, target, ExtraArgs=extra
        )


def _marks(store: Location) -> dict[str, str]:
    """Return the parameters of requests that create an object, by the options of the place."""
    found = {
        "StorageClass": store.option("storage_class"),
        "ServerSideEncryption": store.option("sse"),
        "SSEKMSKeyId": store.option("kms_key"),
        "Tagging": urlencode(store.tags),
    }
    return {name: value for name, value in found.items() if value}


def algorithm_of(store: Location) -> str:
    """Return the checksum algorithm for the parts of an upload; empty for none.

    CRC-32C costs an eighth of SHA-256's CPU and finds damage. Without TLS an attacker could change
    the bytes and the CRC; SHA-256 is in the signature of the request. botocore can add checksums,
    but its CRC-32C needs another library, and with TLS it sends them in a form of body that only
    some servers accept.
    """
    asked = store.option("checksum")
    if asked:
        return "" if asked == "none" else asked.upper()
    has_tls = not s3_endpoint(store).startswith("http://")
    return "CRC32C" if has_tls and find_spec("crc32c") else "SHA256"


def _checksum(name: str, data: bytes | bytearray | memoryview) -> str:
    """Return a checksum as S3 writes it; empty for no algorithm."""
    if not name:
        return ""
    if name == "CRC32C":
        import crc32c

        found = int(crc32c.crc32c(data)).to_bytes(4, "big")
    else:
        found = hashlib.sha256(data).digest()
    return base64.b64encode(found).decode()


def begin(location: Location, algorithm: str) -> str:
    more = {"ChecksumAlgorithm": algorithm} if algorithm else {}
    with _translated("begin an upload to", location):
        answer = client(location, sends_parts=True).create_multipart_upload(
            Bucket=location.bucket, Key=location.key, **_marks(location), **more
        )
    return str(answer["UploadId"])


def send(
    location: Location, upload: str, number: int, body: bytes | bytearray, algorithm: str
) -> UploadedPart:
    """Send a part; parts are numbered from 1."""
    found = _checksum(algorithm, body)
    more = {f"Checksum{algorithm}": found} if algorithm else {}
    # Without a checksum in a header, only the signature protects the bytes.
    with _translated(f"write part {number} of", location):
        answer = client(location, sends_parts=bool(algorithm)).upload_part(
            Bucket=location.bucket,
            Key=location.key,
            UploadId=upload,
            PartNumber=number,
            Body=body,
            **more,
        )
    return UploadedPart(etag=str(answer["ETag"]), checksum=found, bytes=len(body))


def compare(location: Location, upload: UncompletedUpload) -> None:
    """Compare parts in the store with the sent ones; Superseded if they differ or are gone."""
    asking = client(location, sends_parts=True)
    no_upload = asking.exceptions.NoSuchUpload
    try:
        with _translated("list the parts of", location, but=no_upload):
            pages = asking.get_paginator("list_parts").paginate(
                Bucket=location.bucket, Key=location.key, UploadId=upload.id
            )
            there = [part for page in pages for part in page.get("Parts") or ()]
    except no_upload:
        raise _differing(f"the upload of {location.name} does not exist any more") from None
    if len(there) != len(upload.parts):
        raise _differing(
            f"the store has {len(there)} parts of {location.name}, but {len(upload.parts)} were "
            "sent"
        )
    for number, (sent, found) in enumerate(zip(upload.parts, there, strict=True), start=1):
        checksum = found.get(f"Checksum{upload.algorithm}", sent.checksum)
        if (found["PartNumber"], found["Size"], checksum, _bare(found["ETag"])) != (
            number,
            sent.bytes,
            sent.checksum,
            _bare(sent.etag),
        ):
            raise _differing(
                f"part {number} of {location.name} in the store differs from the part that was sent"
            )


def _differing(what: str) -> Superseded:
    return Superseded(f"{what}.", "check the store, and the network between it and this machine.")


def complete(location: Location, upload: UncompletedUpload, *, replaces: bool) -> None:
    """Turn an upload with all of its parts into an object; do nothing if that was done already.

    With `replaces` an existing object is replaced. Otherwise another object is a FileExistsError. A
    FileNotFoundError means that the upload does not exist, and the object is not the one it would
    make. A StoreFailed means that the store refused or failed.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    parts = []
    for number, part in enumerate(upload.parts, start=1):
        more = {f"Checksum{upload.algorithm}": part.checksum} if upload.algorithm else {}
        parts.append({"PartNumber": number, "ETag": part.etag, **more})
    condition = {} if replaces else {"IfNoneMatch": "*"}
    pauses = list(_PAUSES)
    while True:
        try:
            client(location).complete_multipart_upload(
                Bucket=location.bucket,
                Key=location.key,
                UploadId=upload.id,
                MultipartUpload={"Parts": parts},
                **condition,
            )
            return
        except (BotoCoreError, ClientError) as error:
            # An earlier request may have been carried out although its answer was lost.
            if is_there(location, upload):
                return
            code, name = _code_of(error), str(location).partition("?")[0]
            if code == "NotImplemented" and condition:
                # The store has no conditions here; the lock of the place keeps others out.
                condition = {}
            elif code in ("ConditionalRequestConflict", "409") and pauses:
                time.sleep(pauses.pop(0))
            elif code in ("NoSuchUpload", "404"):
                raise FileNotFoundError(
                    errno.ENOENT, "its upload does not exist any more", name
                ) from None
            elif code in ("PreconditionFailed", "412"):
                raise FileExistsError(errno.EEXIST, "another object exists there", name) from None
            else:
                raise _error_of("complete the upload of", location, error) from None


def is_there(location: Location, upload: UncompletedUpload) -> bool:
    """Return whether there is an object with the size and the checksum of an upload."""
    from botocore.exceptions import ClientError

    with _translated("look at", location):
        try:
            head = client(location).head_object(
                Bucket=location.bucket, Key=location.key, ChecksumMode="ENABLED"
            )
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404:
                return False
            raise
    if head["ContentLength"] != upload.bytes:
        return False
    checksum = str(head.get(f"Checksum{upload.algorithm}", "")).partition("-")[0]
    if upload.algorithm and checksum:
        sums = (base64.b64decode(part.checksum) for part in upload.parts)
        return checksum == _checksum(upload.algorithm, b"".join(sums))
    # Stores that use MD5 for the ETags of parts make the ETag of the object from them.
    try:
        etags = b"".join(bytes.fromhex(_bare(part.etag)) for part in upload.parts)
    except ValueError:
        return False
    digest = hashlib.md5(etags, usedforsecurity=False).hexdigest()
    return _bare(head["ETag"]) == f"{digest}-{len(upload.parts)}"


def _bare(etag: str) -> str:
    return etag.strip('"')


class Pending(NamedTuple):
    """An upload that was neither completed nor aborted. Its parts cost money."""

    key: str
    id: str


def pending_uploads(location: Location, *, deep: bool = True) -> list[Pending]:
    """Return the unfinished uploads within a location."""
    more = {} if deep else {"Delimiter": "/"}
    with _translated("list the uploads in", location):
        pages = client(location).get_paginator("list_multipart_uploads")
        found = [
            Pending(each["Key"], each["UploadId"])
            for page in pages.paginate(Bucket=location.bucket, Prefix=location.prefix, **more)
            for each in page.get("Uploads") or ()
        ]
    # Some servers ignore the prefix and the delimiter.
    return [
        each
        for each in found
        if each.key.startswith(location.prefix)
        and (deep or "/" not in each.key.removeprefix(location.prefix))
    ]


def abort_uploads(store: Location, uploads: Iterable[Pending]) -> None:
    """Abort uploads; an upload that has ended meanwhile is not an error."""
    asking = client(store)
    with _translated("abort uploads in", store):
        for each in uploads:
            try:
                asking.abort_multipart_upload(Bucket=store.bucket, Key=each.key, UploadId=each.id)
            except asking.exceptions.NoSuchUpload:
                continue
