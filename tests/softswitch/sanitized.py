# SPDX-License-Identifier: Apache-2.0
"""Feed mutated packets to engine and programs that are built with sanitizers.

    .venv/bin/python -m tests.softswitch.sanitized PACKETS SEED [SCENARIO...]

Address and undefined-behaviour errors end it with the sanitizer's report and not with 0. The
process starts itself again with the sanitizer's library in front, and with Python's own allocator
off, so that a byte read behind a packet is seen.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile

import softswitch.compile
from tests.softswitch.differential import SCENARIOS
from tests.softswitch.differential import softswitch as softswitch_with
from tests.softswitch.scenarios import Scenario

FLAGS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
ASAN = "detect_leaks=0:detect_stack_use_after_return=0:exitcode=86"


def environment() -> dict[str, str]:
    """That of a process with the sanitizer's library in front of all others."""
    found = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    more = {"LD_PRELOAD": " ".join(found), "PYTHONMALLOC": "malloc", "ASAN_OPTIONS": ASAN}
    return {**os.environ, **more, "CC": "gcc", "UBSAN_OPTIONS": "print_stacktrace=1"}


def _mangled(source: random.Random, data: bytes) -> bytes:
    """Cut anywhere, to nothing even, or with bytes changed, doubled, or taken out."""
    changed = bytearray(data)
    for _ in range(source.choice((0, 1, 1, 2, 5))):
        at = source.randrange(len(changed) + 1)
        kind = source.randrange(5)
        if kind == 0:
            del changed[at:]
        elif kind == 1:
            del changed[at : at + source.randrange(8)]
        elif kind == 2:
            changed[at:at] = source.randbytes(source.choice((1, 2, 16, 300)))
        elif kind == 3:
            changed[at : at + 1] = source.choice((b"\0", b"\xff", b"\x80"))
        else:
            changed[at : at + 4] = source.randbytes(4)
    return bytes(changed)


def feed(scenario: Scenario, count: int, seed: int) -> int:
    """Process `count` packets; how many left."""
    source = random.Random(seed)
    left = 0
    with softswitch_with(scenario) as (dataplane, _):
        for port, data in scenario.packets(seed, count):
            left += len(dataplane.process(port, _mangled(source, data)))
    return left


def main() -> int:
    """The child feeds; its parent starts it."""
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "tests.softswitch.sanitized", *sys.argv[1:]]
            return subprocess.run(
                command, env={**environment(), "XDG_CACHE_HOME": cache}, check=False
            ).returncode
    softswitch.compile.FLAGS = (*softswitch.compile.FLAGS, *FLAGS)  # type: ignore[assignment]
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    for name in sys.argv[3:] or SCENARIOS:
        left = feed(SCENARIOS[name], count, seed)
        print(f"{name}: {count} in, {left} out", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
