"""The staged files of one work unit: their names, their order, and the one being written."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from writers.errors import WriteError
from writers.files.sink import Sink
from writers.model import StageSeconds, WrittenFile
from writers.objects.location import Location, is_location

if TYPE_CHECKING:
    from writers.model import Compression, OutputSpec, UncompletedUpload

PART_SUFFIX = ".part"
"""Ends the name of every file that is not published yet."""


class StagedFiles:
    """Opens one file after the other and remembers what was written.

    Names are `<stem>.<extension>.part`, or `<stem>.001.<extension>.part` and on where the
    output has a file size. The first file is opened at once, so that even no rows leave one.

    Args:
        spec: Directory, file size and buffers.
        stem: Name of the files without extension.
        extension: Without a dot in front.
        compression: What is done to the bytes on their way into the file.

    Raises:
        WriteError: The first file cannot be created.
    """

    def __init__(
        self, spec: OutputSpec, stem: str, extension: str, compression: Compression
    ) -> None:
        self._spec = spec
        self._stem = stem
        self._extension = extension
        self._compression = compression
        self._done: list[WrittenFile] = []
        self._done_stages = StageSeconds(uncompressed_bytes=0)
        self._sink: Sink | None = None
        self.sink()

    def sink(self) -> Sink:
        """Return the file being written, opening the next one where there is none.

        Raises:
            WriteError: It cannot be created.
        """
        if self._sink is None:
            self._sink = Sink(
                Path(self._spec.stream) if self._spec.stream else self._place(len(self._done)),
                compression=self._compression,
                buffer_bytes=self._spec.buffer_bytes,
                buffers=self._spec.buffers,
                checksum=self._spec.checksum,
                direct_io=self._spec.direct_io,
                min_free_bytes=self._spec.min_free_bytes,
                recipients=self._spec.encryption.recipients,
                synced_from_bytes=self._spec.synced_from_bytes,
                stays_cached=self._spec.stays_cached,
                held=self._spec.finals is not None,
            )
        return self._sink

    @property
    def is_open(self) -> bool:
        """Whether a file is being written."""
        return self._sink is not None

    def finish(self, rows: int) -> None:
        """Sync and close the file being written, which holds `rows` rows.

        Raises:
            WriteError: The destination failed; that file is removed, earlier ones are not.
        """
        sink = self.sink()
        size, checksum = sink.close()
        name = sink.path.name if sink.upload is None else self._name(len(self._done))
        self._done.append(
            WrittenFile(path=name, rows=rows, bytes=size, checksum=checksum, upload=sink.upload)
        )
        self._done_stages = _with_sink(self._done_stages, sink)
        self._sink = None

    @property
    def files(self) -> tuple[WrittenFile, ...]:
        """The closed files, in the order they were written."""
        return tuple(self._done)

    def abort(self) -> None:
        """Remove every file; never raises."""
        if self._sink is not None:
            self._sink.abort()
            self._sink = None
        # What has gone through a pipe is nowhere, and the pipe is not ours to remove.
        for number, file in enumerate(() if self._spec.stream else self._done):
            _remove(self._place(number), file.upload)
        self._done.clear()

    def _name(self, number: int) -> str:
        """Return what a file is called while it is staged, and in the records of its unit."""
        part = f".{number + 1:03d}" if self._spec.file_size_bytes else ""
        return f"{self._stem}{part}.{self._extension}{PART_SUFFIX}"

    def _place(self, number: int) -> Path | Location:
        """Return where a file is written, by its number from 0."""
        finals, name = self._spec.finals, self._name(number)
        if finals is not None:
            return Location.parse(finals.place).below(finals.name(number))
        if is_location(self._spec.directory):
            return Location.parse(self._spec.directory).below(name)
        return Path(self._spec.directory, name)

    @property
    def bytes_written(self) -> int:
        """Bytes in all files so far, after compression."""
        writing = self._sink.bytes_written if self._sink is not None else 0
        return sum(file.bytes for file in self._done) + writing

    def stages(self, encode_seconds: float) -> StageSeconds:
        """Return the seconds and bytes so far."""
        stages = self._done_stages
        if self._sink is not None:
            stages = _with_sink(stages, self._sink)
        return replace(stages, encode_s=encode_seconds)


def _remove(file: Path | Location, upload: UncompletedUpload | None) -> None:
    """Remove a file, an object or an upload, or leave it to whoever clears the place."""
    if isinstance(file, Path):
        with contextlib.suppress(OSError):
            file.unlink()
        return
    from writers.objects.upload import remove, remove_upload

    if upload is not None:
        remove_upload(file, upload.id)
        return
    with contextlib.suppress(WriteError):
        remove(file)


def _with_sink(stages: StageSeconds, sink: Sink) -> StageSeconds:
    """Return the stages with those of one more file."""
    return StageSeconds(
        write_s=stages.write_s + sink.write_seconds,
        compress_s=stages.compress_s + sink.compress_seconds,
        compress_cpu_s=stages.compress_cpu_s + sink.compress_cpu_seconds,
        uncompressed_bytes=(stages.uncompressed_bytes or 0) + sink.bytes_accepted,
        write_cpu_s=stages.write_cpu_s + sink.write_cpu_seconds,
        own_cpu_s=stages.own_cpu_s + sink.own_cpu_seconds,
        write_delay_s=stages.write_delay_s + sink.write_delay_seconds,
        compress_delay_s=stages.compress_delay_s + sink.compress_delay_seconds,
        encode_blocked_s=stages.encode_blocked_s + sink.encode_blocked.seconds,
        compress_blocked_s=stages.compress_blocked_s + sink.compress_blocked.seconds,
        longest_blocked_s=max(
            stages.longest_blocked_s,
            sink.encode_blocked.longest_seconds,
            sink.compress_blocked.longest_seconds,
        ),
    )
