#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Look for data races: a switch forwards while another thread writes whatever can be written.

    unshare --net -- .venv/bin/python scripts/race_switch.py [--seconds N] [--seed N] [SCENARIO...]

Engine and program are built with gcc's thread sanitizer, or with --memory with those for addresses
and undefined behaviour, on the way that fuzz_switch.py does not take: interfaces and queues. Exits
with 1 when something is reported.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ptf_tests.namespace import VethPairs, require_private_namespace
from tests.softswitch.fuzzing import FUZZED, Compiler, make_ready

ENDS = ("raced", "tester")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 1 when a race is found."""
    parser = argparse.ArgumentParser(description="look for data races in softswitch's engine")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(FUZZED))
    parser.add_argument("--seconds", type=int, default=10, help="per scenario")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", action="store_true", help="address errors instead of races")
    options = parser.parse_args(arguments)
    if unknown := set(options.scenarios) - set(FUZZED):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(FUZZED)}")
    require_private_namespace()
    compiler = Compiler.gcc("race.c", "address,undefined" if options.memory else "thread")
    failed = 0
    with tempfile.TemporaryDirectory() as name, VethPairs([ENDS]):
        harness = compiler.harness(Path(name))
        for scenario in options.scenarios or FUZZED:
            with tempfile.TemporaryDirectory() as directory:
                env = make_ready(FUZZED[scenario], compiler, Path(directory))
                files = sorted(map(str, (Path(directory) / "seeds").iterdir()))
                command = [str(harness), str(options.seconds), str(options.seed), *ENDS, *files]
                done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            print(f"{scenario}: {done.stdout.strip() or 'ended early'}", flush=True)
            if done.returncode:
                failed += 1
                print(done.stderr[-6000:], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
