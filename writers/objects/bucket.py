"""Opens object stores; reads and writes objects by their keys, each as a whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import IO, Any, NamedTuple, TypeVar

from writers.errors import FormatError, StoreFailed, Superseded, WriteError
from writers.objects.location import Location, addressing, s3_endpoint
from writers.objects.s3_requests import copy_large, credentials_of_profile, region_of_profile

T = TypeVar("T")
R = TypeVar("R")

_RETRIES: Any = {
    "max_retries": 10,
    "retry_timeout": timedelta(seconds=120),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        # Less than half of the time after which a lock counts as lost.
        "max_backoff": timedelta(seconds=5),
        # A delay is random, between the first delay and the last one times this base. With 2 the
        # delays hardly grow: ten of them were over within three seconds.
        "base": 4,
    },
}
"""Of each request: after 429 and 5xx it is made again, with growing delays. The library ignores
`Retry-After`, so the delays have to add up to what stores ask for."""

_REQUEST_SECONDS = 90
"""Of one request. A part of 64 MiB takes that long on a line of 6 Mbit/s."""
_READ_BYTES = 8 * 1024 * 1024
"""Of one request while an object is read."""
_LARGEST_COPY_BYTES = 5 * 1024**3
"""Of one request in S3: https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html"""
_THREADS = 16
"""Requests at the same time for many objects."""
_MESSAGE_LENGTH = 300


# By process: a forked process does not have the threads of the library.
@lru_cache(maxsize=64)
def _opened(store: Location, _: int) -> Any:
    """Return the store of a bucket, which a process opens once."""
    # Uploads to S3 go through boto3, which would be missed only in the middle of the first one.
    for package in ("obstore", "boto3", "botocore") if store.scheme == "s3" else ("obstore",):
        if find_spec(package) is None:
            raise FormatError(
                f"{store.scheme}:// needs the package {package}, which is not installed.",
                "install it with: pip install 'unloader[cloud]'.",
            )
    from obstore import exceptions
    from obstore import store as stores

    endpoint = s3_endpoint(store) if store.scheme == "s3" else store.option("endpoint")
    try:
        if store.scheme == "s3":
            return _s3(store, endpoint)
        if store.scheme == "az":
            config: Any = {"account_name": store.option("account"), "endpoint": endpoint}
            config = {name: value for name, value in config.items() if value}
            return stores.AzureStore(store.bucket, config=config, **_settings(endpoint))
        host = os.environ.get("STORAGE_EMULATOR_HOST", "")
        endpoint = endpoint or (host if not host or "://" in host else f"http://{host}")
        # Another server with this protocol does not know Google's accounts.
        config = {"base_url": endpoint, "skip_signature": True} if endpoint else {}
        return stores.GCSStore(store.bucket, config=config, **_settings(endpoint))
    except (exceptions.BaseError, ValueError) as error:
        what = str(error).partition("\n")[0][:300]
        raise FormatError(
            f"cannot open {store}: {what}.", "check its options and the credentials."
        ) from None


def _settings(endpoint: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "timeout": timedelta(seconds=_REQUEST_SECONDS),
        "connect_timeout": timedelta(seconds=10),
    }
    if endpoint.startswith("http://"):
        options["allow_http"] = True
    return {"client_options": options, "retry_config": _RETRIES}


_OWN_CHAIN = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables of credentials that obstore finds and renews: keys, a role of a Kubernetes service
account, or a container's role."""


def _s3(store: Location, endpoint: str) -> Any:
    from obstore.store import S3Store

    config: Any = {"virtual_hosted_style_request": addressing(store) == "virtual"}
    if endpoint:
        config["endpoint"] = endpoint
    checksum = store.option("checksum") or "sha256"
    if checksum == "crc32c":
        # The library does not support it.
        checksum = "sha256"
    if checksum != "none":
        config["checksum_algorithm"] = checksum
    if sse := store.option("sse"):
        config["server_side_encryption"] = sse
    if key := store.option("kms_key"):
        config["sse_kms_key_id"] = key
    more = _settings(endpoint)
    has_own_chain = not os.environ.get("AWS_PROFILE") and any(map(os.environ.get, _OWN_CHAIN))
    if store.option("profile") or not has_own_chain:
        more["credential_provider"] = credentials_of_profile(store)
        region = region_of_profile(store)
    else:
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    config["region"] = store.option("region") or region or "us-east-1"
    return S3Store(store.bucket, config=config, **more)


class Found(NamedTuple):
    key: str
    bytes: int


class Bucket:
    """The objects of the bucket that a location is in; all keys begin at its root.

    Methods that read raise FileNotFoundError or another OSError. Methods that write raise
    StoreFailed, a WriteError; the object may be written nevertheless. A FormatError: the library,
    or an option that the store needs, is missing.
    """

    def __init__(self, location: Location) -> None:
        self.location = location.store
        self._store = _opened(self.location, os.getpid())
        self._marks: dict[str, Any] = {"tags": tags} if (tags := self.location.tags) else {}

    def read(self, key: str) -> bytes:
        return self.read_version(key)[0]

    def read_version(self, key: str) -> tuple[bytes, object]:
        """Return a small object and its version, which `replace` takes."""
        with self._reading(key):
            answer = self._store.get(key)
            return bytes(answer.bytes()), _version(answer.meta)

    def open(self, key: str) -> IO[bytes]:
        """Return an object open for reading, in pieces and from any position."""
        with self._reading(key):
            meta = self._store.head(key)
        size, version = int(meta["size"]), meta.get("e_tag")

        def piece(start: int, end: int) -> bytes:
            options: Any = {"range": (start, end)}
            if version is not None:
                # All pieces are of one object, though it may be replaced meanwhile.
                options["if_match"] = version
            with self._reading(key):
                return bytes(self._store.get(key, options=options).bytes())

        return io.BufferedReader(_Pieces(size, piece), _READ_BYTES)

    def size(self, key: str) -> int | None:
        """Return the bytes of an object; None if it does not exist."""
        try:
            with self._reading(key):
                return int(self._store.head(key)["size"])
        except FileNotFoundError:
            return None

    def put(self, key: str, data: bytes) -> object:
        """Write or replace a small object; return its version."""
        return self._put(key, data, "overwrite")

    def put_new(self, key: str, data: bytes) -> object:
        """Write a small object, and return its version; FileExistsError if there is another one.

        If the store's answer was lost and the request was repeated, our own bytes are there: then
        the object is written.
        """
        try:
            return self._put(key, data, "create")
        except FileExistsError:
            there, version = self._current(key)
            if there != data:
                raise
            return version

    def replace(self, key: str, data: bytes, version: object) -> object:
        """Replace an object of that version and return the new version, else raise Superseded."""
        try:
            return self._put(key, data, version)
        except Superseded:
            there, now = self._current(key)
            if there != data:
                raise
            return now

    def _current(self, key: str) -> tuple[bytes, object]:
        try:
            return self.read_version(key)
        except FileNotFoundError:
            return b"", None
        except OSError as error:
            raise StoreFailed(f"{error}.", "check the store and its log.") from None

    def _put(self, key: str, data: bytes, mode: Any) -> object:
        from obstore import exceptions

        try:
            return _version(
                self._store.put(key, data, mode=mode, use_multipart=False, **self._marks)
            )
        except exceptions.AlreadyExistsError:
            raise FileExistsError(
                errno.EEXIST, "the object already exists", self._text(key)
            ) from None
        except (exceptions.PreconditionError, FileNotFoundError) as error:
            if isinstance(mode, str):
                raise self.failed("write", key, error) from None
            raise Superseded(
                f"{self._text(key)} was replaced or removed by another process.",
                "find out which other run is writing there.",
            ) from None
        except Exception as error:
            raise self.failed("write", key, error) from None

    def writer(self, key: str, part_bytes: int, in_flight: int) -> Any:
        """Return obstore's writer of a large object, sent in parts; see `upload`."""
        import obstore

        try:
            return obstore.open_writer(
                self._store, key, buffer_size=part_bytes, max_concurrency=in_flight, **self._marks
            )
        except Exception as error:
            raise self.failed("write", key, error) from None

    def within(self, prefix: str) -> list[Found]:
        """Return the objects below a prefix, empty or with a slash at its end, in order of keys."""
        with self._reading(prefix):
            found = [
                Found(each["path"], each["size"])
                for chunk in self._store.list(prefix.rstrip("/") or None)
                for each in chunk
            ]
        return sorted(each for each in found if each.key.startswith(prefix))

    def look(self, prefix: str) -> tuple[list[str], list[Found]]:
        """Return the names of the prefixes and the objects one level below a prefix."""
        with self._reading(prefix):
            answer = self._store.list_with_delimiter(prefix.rstrip("/") or None)
        levels = [each.rstrip("/").rpartition("/")[2] for each in answer["common_prefixes"]]
        objects = [Found(each["path"], each["size"]) for each in answer["objects"]]
        return sorted(levels), sorted(each for each in objects if each.key.startswith(prefix))

    def copy(self, source: str, size: int, target: str) -> None:
        """Copy an object within the store, over another one too; FileNotFoundError without it."""
        special = self.location.option("storage_class") or self.location.tags
        if self.location.scheme == "s3" and (special or size > _LARGEST_COPY_BYTES):
            copy_large(self.location, source, target)
            return
        try:
            self._store.copy(source, target)
        except FileNotFoundError:
            raise FileNotFoundError(
                errno.ENOENT, "the object does not exist any more", self._text(source)
            ) from None
        except Exception as error:
            raise self.failed("publish", target, error) from None

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; an object that does not exist is not an error."""
        chosen = sorted(keys)
        if not chosen:
            return
        try:
            self._store.delete(chosen)
        except FileNotFoundError:
            # Some stores report a missing object, and may have stopped at it.
            if len(chosen) > 1:
                together(lambda key: self.delete([key]), chosen)
        except Exception as error:
            raise self.failed("remove", chosen[0], error) from None

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        """Turn the store's error into an OSError that names the object."""
        try:
            yield
        except Exception as error:
            name = self._text(key)
            if isinstance(error, FileNotFoundError):
                raise FileNotFoundError(errno.ENOENT, "the object does not exist", name) from None
            if _is_refusal(error):
                raise PermissionError(
                    errno.EACCES, f"the store refused: {answer_of(error)}", name
                ) from None
            raise OSError(errno.EIO, answer_of(error), name) from None

    def failed(self, verb: str, key: str, error: BaseException) -> WriteError:
        """Return the error for the store's answer to a request that changes an object."""
        text = f"cannot {verb} {self._text(key)}: {answer_of(error)}."
        no_bucket = "check the name of the bucket, and create it if it is missing."
        if "NoSuchBucket" in str(error):
            return WriteError(text, no_bucket)
        if _is_refusal(error):
            return WriteError(
                text, "give these credentials the permission to write and delete there."
            )
        if isinstance(error, FileNotFoundError):
            return WriteError(text, no_bucket)
        return StoreFailed(text, "check the store, its limits and the network.")

    def _text(self, key: str) -> str:
        return str(self.location.below(key)).partition("?")[0]


def together(act: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return results of 16 calls at a time; the first error prevents calls not begun."""
    if len(items) < 2:
        return [act(item) for item in items]
    with ThreadPoolExecutor(min(_THREADS, len(items)), thread_name_prefix="objects") as pool:
        waiting = [pool.submit(act, item) for item in items]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class _Pieces(io.RawIOBase):
    """An object read with `piece(start, end)`, all of one version, unlike obstore's reader."""

    def __init__(self, size: int, piece: Callable[[int, int], bytes]) -> None:
        self._size, self._piece = size, piece
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._at + len(buffer))
        if end <= self._at:
            return 0
        data = self._piece(self._at, end)
        if len(data) != end - self._at:
            raise OSError(
                errno.EIO, f"{len(data)} bytes arrived, but {end - self._at} were requested"
            )
        buffer[: len(data)] = data
        self._at = end
        return len(data)

    def readall(self) -> bytes:
        # Each request has the size of a buffer.
        pieces = []
        while self._at < self._size:
            end = min(self._size, self._at + _READ_BYTES)
            pieces.append(self._piece(self._at, end))
            self._at = end
        return b"".join(pieces)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "the position is before the first byte")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at


def _version(answer: Any) -> object:
    names = ("e_tag", "version")
    return {name: answer[name] for name in names if answer.get(name) is not None}


def answer_of(error: BaseException) -> str:
    """Return a store's answer in one line: status, code and message, if the store sent them."""
    text = str(error)
    status = re.search(r"status code: ([^:\n]*)", text)
    code = re.search(r"<Code>([^<]*)</Code>", text)
    message = re.search(r"<Message>([^<]*)</Message>", text)
    parts = [each.group(1).strip() for each in (status, code, message) if each]
    if parts:
        return ", ".join(parts)[:_MESSAGE_LENGTH]
    line = text.partition("\n")[0].strip() or type(error).__name__
    if unanswered := re.search(r"after (\d+) retries.* - (.*)", line):
        return f"no answer after {unanswered.group(1)} retries ({unanswered.group(2).strip()})"
    return line[:_MESSAGE_LENGTH].rstrip(". ")


def _is_refusal(error: BaseException) -> bool:
    """Return whether the store will refuse every further request too."""
    from obstore import exceptions

    classes = (
        exceptions.PermissionDeniedError,
        exceptions.UnauthenticatedError,
        NotImplementedError,
    )
    return isinstance(error, classes) or bool(
        re.search(r"status code: (400|401|403|404|405)\b", str(error))
        and "NoSuchUpload" not in str(error)
    )
