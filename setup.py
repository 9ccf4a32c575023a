"""Builds the native text encoder; everything else about the package is in setup.cfg.

The encoder is optional: without a C++ compiler the package installs, and writes the same bytes
more slowly.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, LinkError

SOURCES = Path("writers/native/src")
STATIC = ["-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL", "-s"]
"""The library then needs no C++ runtime where it runs, which may be older than that of here."""


class BuildEncoder(build_ext):
    """Links the C++ runtime into the library where the compiler can."""

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


setup(
    ext_modules=[
        Extension(
            "writers.native._encoder",
            sources=sorted(map(str, SOURCES.glob("*.cpp"))),
            depends=sorted(map(str, SOURCES.glob("*.h"))),
            language="c++",
            extra_compile_args=["-std=c++17", "-O3", "-g0", "-fvisibility=hidden"],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildEncoder},
)
