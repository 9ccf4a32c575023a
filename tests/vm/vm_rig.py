"""QEMU, a kernel and an initramfs to boot virtual machines with, all from Debian's packages.

The kernel is unpacked, not installed, into `$XDG_CACHE_HOME/unloader-vm`; QEMU is installed if this
is root and apt-get is there. Existing files are used as they are: the second time nothing is
fetched and no package list is read. To see the steps, run this file.
"""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import vm_initramfs

SWITCH = "UNLOADER_TEST_VM"
"""Set to `off` in the environment, nothing is fetched, installed or booted."""

_QEMU = "qemu-system-x86_64"
# The cloud kernel has no 9p.
_KERNEL_PACKAGE = re.compile(r"^Depends:.*?(linux-image-\d\S*-amd64)", re.MULTILINE)
_KERNEL_FILES = (
    r".*/(?:vmlinuz-[^/]+|modules\.builtin|kernel/(?:fs|net/9p|drivers/virtio)/.*\.ko(?:\.xz)?)"
)
_XZ_MAGIC = b"\xfd7zXZ\0"
_APT = ("-qq", "-o", "DPkg::Lock::Timeout=60", "-o", "Dpkg::Use-Pty=0")
_FETCH_SECONDS = 170

Say = Callable[[str], None]


class Missing(Exception):
    """Virtual machines cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """What a virtual machine is started with."""

    qemu: str
    kernel: Path
    """Uncompressed: unpacking itself takes an emulated kernel seconds."""
    initramfs: Path


def prepared(say: Say = lambda text: None) -> Rig:
    """Return the rig, made or completed if necessary.

    Args:
        say: Called with each step that takes time.
    Raises:
        Missing: It cannot be had.
    """
    if os.environ.get(SWITCH) == "off":
        raise Missing(f"{SWITCH} is off")
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Missing(f"the guests are Linux on x86_64, this is {sys.platform}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unloader-vm"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache):
            qemu = _qemu(say)
            folder = _booting(cache, say)
    except (OSError, lzma.LZMAError, tarfile.TarError, subprocess.TimeoutExpired) as error:
        raise Missing(str(error)) from error
    return Rig(qemu=qemu, kernel=folder / "vmlinux", initramfs=folder / "initramfs")


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Keep out the other processes of this suite, and other suites."""
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _qemu(say: Say) -> str:
    found = shutil.which(_QEMU)
    if found is None:
        if os.geteuid() != 0:
            raise Missing(f"{_QEMU} is not installed, and only root may install it")
        say("installing QEMU")
        _apt("install", "--yes", "--no-install-recommends", "qemu-system-x86", "qemu-system-data")
        found = shutil.which(_QEMU)
    if found is None:
        raise Missing(f"{_QEMU} is not on PATH although its package is installed")
    return found


def _booting(cache: Path, say: Say) -> Path:
    """Return the folder with kernel and initramfs as this version of the code makes them."""
    sources = (Path(__file__), Path(vm_initramfs.__file__))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    folder = cache / digest[:16]
    if folder.exists():
        return folder
    with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as started:
        downloads, work = Path(started) / "downloads", Path(started) / "work"
        downloads.mkdir()
        work.mkdir()
        _make(downloads, work, say)
        work.rename(folder)
    return folder


def _make(downloads: Path, work: Path, say: Say) -> None:
    kernel = _kernel_package()
    say(f"downloading {kernel} and busybox-static")
    as_root = ("-o", "APT::Sandbox::User=root")  # who else may not write to this folder
    _apt("download", kernel, "busybox-static", *as_root, folder=downloads)
    say("unpacking the kernel")
    image, builtin, modules = b"", "", {}
    for name, data in _members(next(downloads.glob("linux-image-*.deb")), _KERNEL_FILES):
        if name.startswith("vmlinuz-"):
            image = data
        elif name == "modules.builtin":
            builtin = data.decode()
        else:
            modules[name.partition(".ko")[0].replace("-", "_")] = data
    (work / "vmlinux").write_bytes(_uncompressed(image))
    say("making the initramfs")
    shell = dict(_members(next(downloads.glob("busybox-static_*.deb")), r".*/bin/busybox"))
    try:
        archive = vm_initramfs.archive(shell["busybox"], modules, builtin)
    except KeyError as error:
        raise Missing(f"{kernel} has no module {error}") from error
    (work / "initramfs").write_bytes(archive)


def _kernel_package() -> str:
    """Return the name of the package with the newest kernel; reads the package lists if need be."""
    for attempt in range(2):
        shown = subprocess.run(
            [_tool("apt-cache"), "show", "--no-all-versions", "linux-image-amd64"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_FETCH_SECONDS,
        )
        match = _KERNEL_PACKAGE.search(shown.stdout)
        if match:
            return match[1]
        if attempt == 0:
            _update()
    raise Missing("apt knows no package linux-image-amd64 (it is Debian's)")


def _apt(*arguments: str, folder: Path | None = None) -> None:
    """Run apt-get; a second time with new package lists, as old ones name removed packages."""
    for attempt in range(2):
        done = subprocess.run(
            [_tool("apt-get"), *_APT, *arguments],
            cwd=folder,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_FETCH_SECONDS,
        )
        if done.returncode == 0:
            return
        if attempt == 0:
            _update()
    said = (done.stderr.strip() or "nothing said").splitlines()
    raise Missing(f"apt-get {arguments[0]} failed: {said[-1]}")


def _update() -> None:
    """Fetch the package lists; if that fails, so does what needs them."""
    if os.geteuid() == 0:
        subprocess.run(
            [_tool("apt-get"), *_APT, "update"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_FETCH_SECONDS,
        )


def _members(package: Path, wanted: str) -> Iterator[tuple[str, bytes]]:
    """Yield last name and content of the package's files whose whole path matches."""
    command = [_tool("dpkg-deb"), "--fsys-tarfile", str(package)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as files,
    ):
        for member in files:
            if member.isfile() and re.fullmatch(wanted, member.name):
                content = files.extractfile(member)
                assert content is not None
                yield Path(member.name).name, content.read()


def _uncompressed(image: bytes) -> bytes:
    """Return the ELF file that a bzImage carries."""
    start = image.find(_XZ_MAGIC)
    if start < 0:
        raise Missing("the kernel is not compressed with xz")
    return lzma.LZMADecompressor().decompress(image[start:])


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not on PATH")
    return found


if __name__ == "__main__":
    try:
        print(prepared(print))
    except Missing as missing:
        sys.exit(f"no virtual machines: {missing}")
