# SPDX-License-Identifier: Apache-2.0
"""From C sources to shared objects, each compiled once and kept in a cache keyed by content.

A cache entry's name is the digest of everything that goes into it: sources, headers, flags and the
compiler's own version. Several switches that start at once with the same program compile once: the
first holds a lock, the others wait for it and find the file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from softswitch.errors import CompileError

C_DIR = Path(__file__).parent / "csrc"
FLAGS = (
    *("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
    *("-fno-strict-aliasing", "-Wall", "-Wextra", "-pthread"),
)
_COMPILERS = ("cc", "gcc", "clang")


def default_cache_dir() -> Path:
    """${XDG_CACHE_HOME:-~/.cache}/softswitch. Raises CompileError for a user without a home."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "softswitch"
    try:
        return Path.home() / ".cache" / "softswitch"
    except RuntimeError:
        raise CompileError(
            "no place for compiled programs: the user has no home directory; name a directory in "
            "XDG_CACHE_HOME"
        ) from None


def engine_library(cache_dir: Path) -> Path:
    """The compiled engine: ports, queues, tables."""
    sources = {path.name: path.read_text() for path in sorted(C_DIR.glob("*.c"))}
    return _library("engine", sources, cache_dir)


def program_library(source: str, cache_dir: Path) -> Path:
    """A compiled program, from the translator's C source."""
    return _library("program", {"program.c": source}, cache_dir)


@cache
def _compiler() -> tuple[str, str]:
    """Path and version of the C compiler: $CC, or the first that is installed."""
    wanted = os.environ.get("CC")
    names = (wanted,) if wanted else _COMPILERS
    for name in names:
        if path := shutil.which(name):
            done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            return path, done.stdout
    raise CompileError(
        f"no C compiler: looked for {', '.join(names)} on PATH; install gcc, or name one in CC"
    )


def _library(kind: str, sources: Mapping[str, str], cache_dir: Path) -> Path:
    compiler, version = _compiler()
    digest = hashlib.sha256(repr((kind, FLAGS, version)).encode())
    for header in sorted(C_DIR.glob("*.h")):
        digest.update(header.read_bytes())
    for name, text in sources.items():
        digest.update(f"\0{name}\0{text}".encode())
    target = cache_dir / f"{kind}-{digest.hexdigest()[:32]}.so"
    try:
        if target.exists():
            return target
        cache_dir.mkdir(parents=True, exist_ok=True)
        with (cache_dir / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                _compile(compiler, sources, target)
    except OSError as error:
        raise CompileError(
            f"compiled programs are kept in {cache_dir}: {error} "
            "(XDG_CACHE_HOME names another place)"
        ) from error
    return target


def _compile(compiler: str, sources: Mapping[str, str], target: Path) -> None:
    """Compile into `target`, which appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as name:
        build = Path(name)
        for source, text in sources.items():
            (build / source).write_text(text)
        output = build / "out.so"
        command = [compiler, *FLAGS, f"-I{C_DIR}", "-o", str(output)]
        command += [str(build / source) for source in sources]
        # In a process group of its own: Ctrl-C is for the switch, which ends when this is done.
        done = subprocess.run(
            [*command, "-ldl"], capture_output=True, text=True, check=False, process_group=0
        )
        if done.returncode:
            raise CompileError(f"{compiler} failed:\n{done.stderr[-4000:]}")
        with output.open("rb") as file:
            os.fsync(file)  # a power failure must not leave an empty file under the final name
        output.replace(target)
