"""Reads and writes objects by their keys. Each object is there as a whole or not at all."""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, NamedTuple, TypeVar

from writers.errors import StoreFailed, Superseded, WriteError
from writers.objects.location import Location
from writers.objects.opening import open_store

T = TypeVar("T")
R = TypeVar("R")

_READ_BYTES = 8 * 1024 * 1024
"""Of one request while an object is read."""
_LARGEST_COPY_BYTES = 5 * 1024**3
"""Of one request in S3: https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html"""
_THREADS = 16
"""Requests at once where there are many objects."""
_MESSAGE_LENGTH = 300


class Found(NamedTuple):
    """An object of a listing."""

    key: str
    bytes: int


class Bucket:
    """The objects of one bucket.

    Keys are whole ones, from the bucket's root.

    Args:
        location: Anywhere in the bucket.

    Raises:
        FormatError: The store cannot be opened; see `open_store`.
    """

    def __init__(self, location: Location) -> None:
        self.location = location.store
        self._store = open_store(location)

    def read(self, key: str) -> bytes:
        """Return a small object.

        Raises:
            FileNotFoundError: There is none.
            OSError: It cannot be read.
        """
        return self.read_version(key)[0]

    def read_version(self, key: str) -> tuple[bytes, object]:
        """Return a small object, and what `replace` takes for its version.

        Raises:
            FileNotFoundError: There is none.
            OSError: It cannot be read.
        """
        import obstore

        try:
            answer = obstore.get(self._store, key)
            data = bytes(answer.bytes())
        except Exception as error:
            raise self._read_error(key, error) from None
        return data, _version(answer.meta)

    def read_all(self, keys: Sequence[str]) -> list[bytes]:
        """Return small objects, several requests at once.

        Raises:
            FileNotFoundError: One is not there.
            OSError: One cannot be read.
        """
        return together(self.read, keys)

    def open(self, key: str) -> IO[bytes]:
        """Return an object open for reading, in pieces and from any position.

        Raises:
            FileNotFoundError: There is none.
            OSError: It cannot be read.
        """
        import obstore

        try:
            meta = obstore.head(self._store, key)
        except Exception as error:
            raise self._read_error(key, error) from None
        size, version = int(meta["size"]), meta.get("e_tag")

        def piece(start: int, end: int) -> bytes:
            options: Any = {"range": (start, end)}
            if version is not None:
                # All pieces are of one object, though it may be replaced meanwhile.
                options["if_match"] = version
            try:
                return bytes(obstore.get(self._store, key, options=options).bytes())
            except Exception as error:
                raise self._read_error(key, error) from None

        return io.BufferedReader(_Pieces(size, piece), _READ_BYTES)

    def size(self, key: str) -> int | None:
        """Return the bytes of an object; None if there is none.

        Raises:
            OSError: The store refused.
        """
        import obstore

        try:
            return int(obstore.head(self._store, key)["size"])
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._read_error(key, error) from None

    def put(self, key: str, data: bytes) -> object:
        """Write or replace a small object; return its version.

        Raises:
            StoreFailed: The store refused or failed; it may be there nevertheless.
        """
        return self._put(key, data, "overwrite")

    def put_new(self, key: str, data: bytes) -> object:
        """Write a small object that is not there yet; return its version.

        Where the store's answer was lost and the request was made again, our own bytes are there:
        then it is written.

        Raises:
            FileExistsError: There is another one.
            StoreFailed: The store refused or failed.
        """
        try:
            return self._put(key, data, "create")
        except FileExistsError:
            there, version = self._there(key)
            if there != data:
                raise
            return version

    def replace(self, key: str, data: bytes, version: object) -> object:
        """Replace an object if it is still that version; return its new one.

        Raises:
            Superseded: It is another one, or gone.
            StoreFailed: The store refused or failed; it may be replaced nevertheless.
        """
        try:
            return self._put(key, data, version)
        except Superseded:
            there, now = self._there(key)
            if there != data:
                raise
            return now

    def _there(self, key: str) -> tuple[bytes, object]:
        try:
            return self.read_version(key)
        except FileNotFoundError:
            return b"", None
        except OSError as error:
            raise StoreFailed(f"{error}.", "check the store and its log.") from None

    def _put(self, key: str, data: bytes, mode: Any) -> object:
        import obstore
        from obstore import exceptions

        try:
            return _version(
                obstore.put(
                    self._store,
                    key,
                    data,
                    mode=mode,
                    use_multipart=False,
                    **self._marks(),
                )
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
        """Return obstore's writer of a large object, sent in parts; see `writers.objects.upload`.

        Raises:
            StoreFailed: The store refused.
        """
        import obstore

        try:
            return obstore.open_writer(
                self._store,
                key,
                buffer_size=part_bytes,
                max_concurrency=in_flight,
                **self._marks(),
            )
        except Exception as error:
            raise self.failed("write", key, error) from None

    def _marks(self) -> dict[str, Any]:
        marks: dict[str, Any] = {}
        if tags := self.location.tags:
            marks["tags"] = tags
        return marks

    def within(self, prefix: str) -> list[Found]:
        """Return all objects whose keys begin so, in the order of their keys.

        Args:
            prefix: Empty, or with a slash at its end.

        Raises:
            OSError: The store refused.
        """
        import obstore

        try:
            found = [
                Found(each["path"], each["size"])
                for chunk in obstore.list(self._store, prefix.rstrip("/") or None)
                for each in chunk
            ]
        except Exception as error:
            raise self._read_error(prefix, error) from None
        return sorted(each for each in found if each.key.startswith(prefix))

    def look(self, prefix: str) -> tuple[list[str], list[Found]]:
        """Return what is one level below a prefix: names of further levels, and objects.

        Raises:
            OSError: The store refused.
        """
        import obstore

        try:
            answer = obstore.list_with_delimiter(self._store, prefix.rstrip("/") or None)
        except Exception as error:
            raise self._read_error(prefix, error) from None
        levels = [each.rstrip("/").rpartition("/")[2] for each in answer["common_prefixes"]]
        objects = [Found(each["path"], each["size"]) for each in answer["objects"]]
        return sorted(levels), sorted(each for each in objects if each.key.startswith(prefix))

    def copy_all(self, pairs: Sequence[tuple[Found, str]]) -> None:
        """Copy objects to other keys, several at once, within the store.

        Args:
            pairs: What is there, and the key of the copy, which may be there already.

        Raises:
            FileNotFoundError: One is not there any more.
            StoreFailed: The store refused or failed.
        """
        together(lambda pair: self._copy(*pair), pairs)

    def _copy(self, source: Found, target: str) -> None:
        import obstore

        special = self.location.option("storage_class") or self.location.tags
        if self.location.scheme == "s3" and (special or source.bytes > _LARGEST_COPY_BYTES):
            from writers.objects.s3 import copy_large

            copy_large(self.location, source.key, target)
            return
        try:
            obstore.copy(self._store, source.key, target)
        except FileNotFoundError:
            raise FileNotFoundError(
                errno.ENOENT, "the object does not exist any more", self._text(source.key)
            ) from None
        except Exception as error:
            raise self.failed("publish", target, error) from None

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; one that is not there is no error.

        Raises:
            StoreFailed: The store refused or failed.
        """
        import obstore

        chosen = sorted(keys)
        if not chosen:
            return
        try:
            obstore.delete(self._store, chosen)
        except FileNotFoundError:
            # Some stores say so, and may have stopped at it.
            together(self._delete_one, chosen)
        except Exception as error:
            raise self.failed("remove", chosen[0], error) from None

    def _delete_one(self, key: str) -> None:
        import obstore

        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            return
        except Exception as error:
            raise self.failed("remove", key, error) from None

    def failed(self, verb: str, key: str, error: BaseException) -> WriteError:
        """Return the error for what the store said while something was done to an object."""
        from obstore import exceptions

        text = f"cannot {verb} {self._text(key)}: {said(error)}."
        if "NoSuchBucket" in str(error):
            return WriteError(text, "check the name of the bucket, and create it if it is missing.")
        if isinstance(
            error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        ) or _is_refusal(error):
            return WriteError(
                text, "give these credentials the permission to write and delete there."
            )
        if isinstance(error, FileNotFoundError):
            return WriteError(text, "check the name of the bucket, and create it if it is missing.")
        return StoreFailed(text, "check the store, its limits and the network.")

    def _read_error(self, key: str, error: BaseException) -> OSError:
        from obstore import exceptions

        name = self._text(key)
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(errno.ENOENT, "the object does not exist", name)
        if isinstance(
            error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        ) or _is_refusal(error):
            return PermissionError(errno.EACCES, f"the store refused: {said(error)}", name)
        return OSError(errno.EIO, said(error), name)

    def _text(self, key: str) -> str:
        return str(self.location.below(key)).partition("?")[0]


def together(act: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return what a call returns for each item, with up to 16 calls at the same time.

    The first error is raised; calls that have not begun by then are not made.
    """
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
    """An object that is read piece by piece, from any position.

    All pieces are of one version of it, which obstore's own reader does not promise.

    Args:
        size: Of the object.
        piece: Returns the bytes from one position to another.
    """

    def __init__(self, size: int, piece: Callable[[int, int], bytes]) -> None:
        self._size, self._piece = size, piece
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read at most as much as the buffer takes."""
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
        """Read the rest, in requests as large as those of a buffer."""
        pieces = []
        while self._at < self._size:
            end = min(self._size, self._at + _READ_BYTES)
            pieces.append(self._piece(self._at, end))
            self._at = end
        return b"".join(pieces)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position."""
        from_where = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if from_where + offset < 0:
            raise OSError(errno.EINVAL, "the position is before the first byte")
        self._at = from_where + offset
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at


def _version(answer: Any) -> object:
    names = ("e_tag", "version")
    return {name: answer[name] for name in names if answer.get(name) is not None}


def said(error: BaseException) -> str:
    """Return what a store said, in one line: status, code and message where it sent them."""
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
    """Return whether the store will refuse each further request, too."""
    return isinstance(error, NotImplementedError) or bool(
        re.search(r"status code: (400|401|403|404|405)\b", str(error))
        and "NoSuchUpload" not in str(error)
    )
