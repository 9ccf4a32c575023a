"""Builds the native encoders, checksums and fetch; everything else is in setup.cfg.

All are optional: without a C++ compiler the package installs, and computes the same more slowly.
With `UNLOADER_PURE=1` none is built, and the wheel is for any machine.

The libraries are loaded by ctypes and do not use Python's C interface. So one wheel is for every
version of Python on a machine.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, LinkError

LIBRARIES = {
    "writers.native._encoder": Path("writers/native/src"),
    "writers.parquet.native._pages": Path("writers/parquet/native/src"),
    "writers.content._sums": Path("writers/content/src"),
    "unloader.sources.oracle.native._fetch": Path("unloader/sources/oracle/native/src"),
    "unloader.sources.postgres.libpq._copy": Path("unloader/sources/postgres/libpq/src"),
    "unloader.sources.mysql._rows": Path("unloader/sources/mysql/src"),
}
"""The name of each library, and the folder of its sources."""
RELATIVE_LINK = re.compile(r"\[([^\[\]]+)\]\((?!\w+:)[^()]+\)")
"""A link of README.md to another page of the clone, which a package index does not have."""
SHARED = LIBRARIES["writers.native._encoder"]
STATIC = ["-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL", "-s"]
"""The library then needs no C++ runtime where it runs, which may be older than that of here."""


class BuildLibraries(build_ext):
    """Links the C++ runtime into the library where the compiler can; builds several at once."""

    def finalize_options(self) -> None:
        """Take the options; without one that says how many, as many as there are processors."""
        super().finalize_options()
        self.parallel = self.parallel or True

    def get_ext_filename(self, fullname: str) -> str:
        """Return a name without a version of Python, such as `writers/native/_encoder.so`."""
        return f"{Path(*fullname.split('.'))}.so"

    def build_extension(self, ext: Extension) -> None:
        """Build one library; called for each."""
        if sys.platform == "linux":
            ext.extra_link_args = STATIC
            try:
                super().build_extension(ext)
            except (CCompilerError, LinkError):
                ext.extra_link_args = []
            else:
                return
        super().build_extension(ext)


class Wheel(bdist_wheel):
    """Tags the wheel for every Python 3, and for every machine if no library was built."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, of its binary interface, and of the machine."""
        built = self.get_finalized_command("build_ext").get_outputs()
        platform = super().get_tag()[2]
        return "py3", "none", platform if any(map(os.path.exists, built)) else "any"


setup(
    long_description=RELATIVE_LINK.sub(r"\1", Path("README.md").read_text("utf-8")),
    ext_modules=[
        Extension(
            name,
            sources=sorted(map(str, folder.glob("*.cpp"))),
            depends=sorted(map(str, (*folder.glob("*.h"), *SHARED.glob("*.h")))),
            language="c++",
            extra_compile_args=["-std=c++17", "-O3", "-g0", "-fvisibility=hidden"],
            optional=True,
        )
        for name, folder in LIBRARIES.items()
        if os.environ.get("UNLOADER_PURE") != "1"
    ],
    cmdclass={"build_ext": BuildLibraries, "bdist_wheel": Wheel},
)
