"""What a run that goes on can be asked to change, as it travels through its destination."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.json import Decoder


class Wish(Struct, frozen=True, kw_only=True, tag_field="format_version", tag=1):
    """Other settings; None leaves one as it is."""

    id: str
    """Tells it from others, so that the run can say which one it has taken."""
    by: str = ""
    """Who asks, for the record."""
    parallelism: int | Literal["adaptive", "auto"] | None = None
    max_sessions: int | None = None
    """0 is no limit, as of the next one."""
    max_cpu: float | None = None
    slow_between: str | None = None
    """Empty is no such hours."""
    slow_parallelism: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be changed."""
        names = (each for each in self.__struct_fields__ if each not in ("id", "by"))
        return all(getattr(self, name) is None for name in names)


_WISH = Decoder(Wish)


def parse_wish(data: bytes) -> Wish | None:
    """Return the wish that these bytes are; None if they are none, or of another version.

    Keys that are not known are passed over.
    """
    try:
        return _WISH.decode(data)
    except (ValueError, RecursionError):
        return None
