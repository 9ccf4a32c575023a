"""Turns the files that describe a machine into one small text, and back into a folder.

Users send the text of their machine: it is readable, and contains only what `numa.topology` reads.
Each file is a line, `relative/path: content`; numbers in braces mean several files of the same
content, as in `cpu/cpu{0,4}/topology/core_cpus_list: 0,4`. Blank lines and lines that begin with
`#` are ignored.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from numa.kernel_files import cpu_list_text, parse_cpu_list, text_of
from numa.model import TopologyError

_MACHINE = ("node/online", "cpu/online", "cpu/present", "cpu/offline")
_NODE = ("cpulist", "meminfo", "distance")
_CPU = (
    "online",
    "topology/core_cpus_list",
    "topology/thread_siblings_list",
    "topology/physical_package_id",
    "topology/package_cpus_list",
    "topology/core_siblings_list",
    "cpu_capacity",
    "acpi_cppc/highest_perf",
)
# The newer of two names for the same content; the older then is not worth a line.
_RENAMED = {
    "topology/thread_siblings_list": "topology/core_cpus_list",
    "topology/core_siblings_list": "topology/package_cpus_list",
}

_NUMBERED = re.compile(r"(node|cpu)(\d{1,7})", re.ASCII)
_STEP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]*", re.ASCII)
_MEM_TOTAL = re.compile(r"^.*\bMemTotal:.*$", re.MULTILINE)
# Guess: several times what 8,192 CPUs, the most a kernel can have, come to.
_MOST_FILES = 200_000


def record(sysfs_root: Path = Path("/sys/devices/system")) -> str:
    """Return the text of a machine's tree, by default this one's.

    A folder without both parts, or a file that is far too large, is a `TopologyError`.
    """
    found = ((path, _content(sysfs_root / path)) for path in _MACHINE)
    lines = [f"{path}: {content}".rstrip() for path, content in found if content is not None]
    for family, names in (("node", _NODE), ("cpu", _CPU)):
        lines += _family_lines(sysfs_root, family, names)
    if not lines:
        raise TopologyError(
            f"{sysfs_root} has no node/ and no cpu/ to record.",
            "give a folder with the layout of /sys/devices/system.",
        )
    return "\n".join(lines) + "\n"


def lay_out(text: str, folder: Path) -> None:
    """Write a recorded text's files below a folder, which `recorded` then can read.

    A file that cannot be written, and a line of another format, is a `TopologyError`. It has the
    number and text of the line, and nothing is written then.
    """
    files: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        path, colon, content = line.partition(":")
        if not colon or len(files) > _MOST_FILES:
            raise _not_a_line(number, line)
        for name in _spelled_out(path, number, line):
            files[name] = content.strip() + "\n"
    for name, content in files.items():
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content, encoding="utf-8")
        except OSError as error:
            raise TopologyError(
                f"cannot write {folder / name}: {error.strerror}.",
                "give an empty folder that you may write to.",
            ) from error


def _family_lines(root: Path, family: str, names: tuple[str, ...]) -> Iterator[str]:
    """The lines of all nodes or all CPUs; numbers whose files agree share a line."""
    try:
        matches = [_NUMBERED.fullmatch(entry.name) for entry in (root / family).iterdir()]
    except OSError:
        return
    alike: dict[tuple[str, str], list[int]] = {}
    for number in sorted(int(match[2]) for match in matches if match and match[1] == family):
        folder = root / family / f"{family}{number}"
        found = {name: _content(folder / name) for name in names}
        for name, content in found.items():
            if content is None or found.get(_RENAMED.get(name, "")) == content:
                continue
            if name == "online" and (content != "0" or (root / "cpu" / "online").exists()):
                continue
            alike.setdefault((name, content), []).append(number)
    ordered = sorted(alike.items(), key=lambda item: (names.index(item[0][0]), item[1]))
    for (name, content), members in ordered:
        shown = f"{{{cpu_list_text(members)}}}" if len(members) > 1 else str(members[0])
        yield f"{family}/{family}{shown}/{name}: {content}".rstrip()


def _content(path: Path) -> str | None:
    """The one line of a file that is read, None if the file is not there."""
    text = text_of(path)
    if text is None:
        return None
    if path.name == "meminfo":
        match = _MEM_TOTAL.search(text)
        return " ".join(match[0].split()) if match else ""
    return " ".join(text.split())


def _spelled_out(path: str, number: int, line: str) -> list[str]:
    """The paths of a line, all below the folder."""
    before, brace, rest = path.partition("{")
    names = [path]
    if brace:
        members, closed, after = rest.partition("}")
        try:
            numbers = parse_cpu_list(members) if closed else ()
        except TopologyError:
            numbers = ()
        names = [f"{before}{n}{after}" for n in numbers] if len(numbers) < _MOST_FILES else []
    if not names or not all(_STEP.fullmatch(step) for step in names[0].split("/")):
        raise _not_a_line(number, line)
    return names


def _not_a_line(number: int, line: str) -> TopologyError:
    return TopologyError(
        f"line {number} of the recorded machine is not 'relative/path: content': {line[:80]!r}.",
        "record the machine again.",
    )
