"""The text of a recorded machine, to a folder and back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from machines.sysfs_trees import recordings

from numa.model import TopologyError
from numa.recording import lay_out, record
from numa.topology import detect, recorded

MACHINE = """\
node/online: 0-1
cpu/online: 0-3
node/node0/cpulist: 0-1
node/node1/cpulist: 2-3
node/node0/meminfo: Node 0 MemTotal: 1024 kB
node/node1/meminfo: Node 1 MemTotal: 2048 kB
node/node0/distance: 10 21
node/node1/distance: 21 10
cpu/cpu{0-1}/topology/core_cpus_list: 0-1
cpu/cpu{2-3}/topology/core_cpus_list: 2-3
cpu/cpu{0-3}/topology/physical_package_id: 0
"""


def test_text_becomes_a_machine_and_the_same_text(tmp_path: Path) -> None:
    """Lines become files, braces several of them; blank lines and comments are nothing."""
    lay_out("# a machine\n\n" + MACHINE, tmp_path)
    assert (tmp_path / "cpu/cpu3/topology/core_cpus_list").read_text() == "2-3\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cpu", "node"]
    assert record(tmp_path) == MACHINE


def test_only_what_is_read_is_recorded(tmp_path: Path) -> None:
    """Other files, other lines of meminfo and older names of the same list are left out."""
    lay_out(MACHINE, tmp_path)
    (tmp_path / "node/node0/meminfo").write_text(
        "Node 0 MemTotal:        1024 kB\nNode 0 MemFree: 5 kB\n"
    )
    (tmp_path / "node/node0/numastat").write_text("numa_hit 5\n")
    (tmp_path / "node/possible").write_text("0-1\n")
    for cpu in (0, 1):
        (tmp_path / f"cpu/cpu{cpu}/topology/thread_siblings_list").write_text("0-1\n")
        (tmp_path / f"cpu/cpu{cpu}/online").write_text("1\n")
    assert record(tmp_path) == MACHINE


@pytest.mark.parametrize(
    "line",
    [
        "no colon",
        "/etc/passwd: x",
        "../up: x",
        "cpu/../../up: x",
        "cpu/./x: y",
        ": x",
        "cpu/cpu{0-}/online: 1",
        "cpu/cpu{x}/online: 1",
        "cpu /online : 1",
        "cpu/cpu{0-999999}/online: 1",
        "cpu/cpu{0}/a{0}: 1",
        "cpu/cpu{0/online: 1",
        "cpu/cpu0/onl\0ine: 1",
    ],
)
def test_bad_line_is_refused(tmp_path: Path, line: str) -> None:
    """A malformed line, or one that leads out of the folder, is refused with its number."""
    with pytest.raises(TopologyError, match="line 3 of the recorded machine") as caught:
        lay_out(f"# head\ncpu/online: 0\n{line}\n", tmp_path / "inner")
    assert repr(line) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", recordings())
def test_recordings_are_small_and_say_where_they_are_from(name: str, tmp_path: Path) -> None:
    """Each begins with the machine and its source, and is what recording it again gives."""
    path = recordings()[name]
    text = path.read_text()
    machine, source, *rest = text.splitlines(keepends=True)
    assert machine.startswith("# ")
    assert source.startswith("# From ")
    assert len(text) < 60_000
    lay_out(text, tmp_path)
    assert record(tmp_path) == "".join(rest)


def test_this_machine_can_be_recorded(tmp_path: Path) -> None:
    """A recording of this machine gives the same topology as the machine."""
    lay_out(record(), tmp_path)
    here = detect()
    if here.note is None:
        cpus = frozenset(cpu for node in here.nodes for cpu in node.cpus)
        there = recorded(tmp_path, allowed_cpus=cpus)
        assert {(node.id, node.cpus, node.cores) for node in here.nodes} <= {
            (node.id, node.cpus, node.cores) for node in there.nodes
        }


def test_folder_with_nothing_to_record_is_refused(tmp_path: Path) -> None:
    """An empty folder, or none, has no text."""
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(TopologyError, match=r"to record\. Next: "):
            record(folder)


def test_unreadable_files_are_as_if_not_there(tmp_path: Path) -> None:
    """Unreadable files cost only their own facts, and cause no traceback.

    In a separate process, without root's rights if the tests run as root: root may read everything.
    """
    lay_out(MACHINE, tmp_path)
    for name in ("node/node1/meminfo", "node/node1/distance", "cpu/cpu0/topology/core_cpus_list"):
        (tmp_path / name).chmod(0)
    program = (
        "import os, pathlib, sys\n"
        "from numa.topology import recorded\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "os.chdir(sys.argv[1])\n"
        "print([(n.memory_bytes, n.distances, n.cores) for n in recorded(pathlib.Path('.')).nodes])\n"
    )
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert done.stderr == ""
    assert done.stdout.strip() == str([(1 << 20, (10, 21), ((0,), (1,))), (None, (), ((2, 3),))])


def test_huge_file_is_refused(tmp_path: Path) -> None:
    """A file larger than any of the kernel's is named, not read."""
    lay_out(MACHINE, tmp_path)
    with (tmp_path / "node/node0/cpulist").open("w") as file:
        file.truncate(1 << 24)
    with pytest.raises(TopologyError, match=r"node0/cpulist is larger than .* bytes.* Next: "):
        recorded(tmp_path)


def test_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """The error names the obstacle of a file."""
    (tmp_path / "node").write_text("in the way")
    with pytest.raises(TopologyError, match=r"cannot write .*node/online.* Next: "):
        lay_out(MACHINE, tmp_path)
