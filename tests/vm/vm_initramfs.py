"""The first files of a guest: busybox, a few kernel modules and the script that mounts the rest.

The guest's root is the host's, read-only over 9p, with a file system in memory on top: it has the
host's interpreter, packages and checkout at the host's paths, and cannot change them.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable, Iterator, Mapping

SHARE = "/unloader-vm/share"
"""Where the guest finds the folder that it shares with the host, writable."""

_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")

# The console is where a guest that cannot be reached otherwise says why.
_INIT = """\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
for module in MODULES; do $b insmod /modules/$module.ko; done
options=trans=virtio,version=9p2000.L,msize=512000
$b mount -t 9p -o ro,cache=loose,$options host /host
$b mount -t tmpfs tmpfs /top
$b mkdir /top/files /top/work
$b mount -t overlay -o lowerdir=/host,upperdir=/top/files,workdir=/top/work overlay /root
$b mount -t proc proc /root/proc
$b mount -t sysfs sysfs /root/sys
$b mount -t devtmpfs devtmpfs /root/dev
$b mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
$b mkdir -p /rootSHARE
$b mount -t 9p -o cache=none,$options share /rootSHARE
$b ip link set lo up
$b chroot /root /bin/sh SHARE/start
echo "start ended with status $?"
$b poweroff -f
"""


def archive(busybox: bytes, modules: Mapping[str, bytes], builtin: str) -> bytes:
    """Return the initramfs, as described in the kernel's initramfs-buffer-format.rst.

    Args:
        busybox: The program, linked statically.
        modules: By name, with underscores; compressed with xz or not.
        builtin: The kernel's `modules.builtin`: parts of the kernel that are not modules.
    Raises:
        KeyError: A module that is needed is not there.
    """
    inside = {_name_of(line) for line in builtin.split()}
    needed: dict[str, bytes] = {}
    for name in _MODULES:
        _add(name, modules, inside, needed)
    script = _INIT.replace("MODULES", " ".join(needed)).replace("SHARE", SHARE)
    folders = ("bin", "dev", "host", "modules", "proc", "root", "top")
    entries = [
        *((name, 0o040755, b"") for name in folders),
        ("bin/busybox", 0o100755, busybox),
        ("init", 0o100755, script.encode()),
        *((f"modules/{name}.ko", 0o100644, data) for name, data in needed.items()),
        ("TRAILER!!!", 0, b""),
    ]
    return b"".join(_newc(entries))


def _add(
    name: str, modules: Mapping[str, bytes], inside: set[str], needed: dict[str, bytes]
) -> None:
    """Add a module, after the ones that it needs."""
    if name in inside or name in needed:
        return
    data = modules[name]
    plain = data if data[:4] == b"\x7fELF" else lzma.decompress(data)
    match = _DEPENDS.search(plain)
    for other in match[1].decode().split(",") if match and match[1] else ():
        _add(other.replace("-", "_"), modules, inside, needed)
    needed[name] = plain


def _name_of(path: str) -> str:
    return path.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def _newc(entries: Iterable[tuple[str, int, bytes]]) -> Iterator[bytes]:
    for number, (name, mode, data) in enumerate(entries, 1):
        title = name.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, 4 device numbers, name's size, checksum
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(title), 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + title
        yield head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
