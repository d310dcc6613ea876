#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzz softswitch's engine and generated code with address and undefined-behaviour sanitizers.

    nice .venv/bin/python scripts/fuzz_switch.py [--seconds N] [--keep DIR] [SCENARIO...]
    .venv/bin/python scripts/fuzz_switch.py --reproduce FILE SCENARIO

Needs Debian's `clang` (and `libclang-rt-14-dev`): its libFuzzer runs in the process, so that an
input costs a function call; AFL++ would talk to a forked server for each one, and does not see
what goes on in a shared object that is loaded later. Inputs that crash, run too long or leak are
kept in DIR/SCENARIO/found, what reached new code in DIR/SCENARIO/corpus, for the next run.
Exits with 1 when something was found.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.softswitch.fuzzing import FUZZED, Compiler, make_ready

SLOW_S = 20
LEAST_S = 5


def fuzz(name: str, seconds: int, keep: Path, harness: Path, compiler: Compiler) -> int:
    """Fuzz one scenario; how many inputs were found that fail."""
    corpus, found = keep / name / "corpus", keep / name / "found"
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir(exist_ok=True)
    known = set(found.iterdir())
    with tempfile.TemporaryDirectory() as directory:
        env = make_ready(FUZZED[name], compiler, Path(directory))
        command = [str(harness), str(corpus), f"{directory}/seeds", f"-max_total_time={seconds}"]
        command += [f"-timeout={SLOW_S}", f"-artifact_prefix={found}/", "-print_final_stats=1"]
        done = subprocess.run([*command], env=env, stderr=subprocess.PIPE, text=True, check=False)
    lines = done.stderr.splitlines()
    covered = [line for line in lines if " cov: " in line][-1:]
    runs = [line.split()[-1] for line in lines if "number_of_executed_units" in line]
    print(f"{name}: {seconds} s, {runs[0] if runs else '?'} runs; {' '.join(covered)}", flush=True)
    new = set(found.iterdir()) - known
    if done.returncode or new:
        print("\n".join(lines[-80:]), flush=True)
        print(f"{name}: found {', '.join(map(str, new)) or 'a failure without an input'}")
    return len(new) or int(done.returncode != 0)


def reproduce(name: str, path: Path, harness: Path, compiler: Compiler) -> int:
    """Run one input; the harness's exit code."""
    with tempfile.TemporaryDirectory() as directory:
        env = make_ready(FUZZED[name], compiler, Path(directory))
        return subprocess.run([str(harness), str(path)], env=env, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 1 when something fails."""
    parser = argparse.ArgumentParser(description="fuzz softswitch's engine and generated code")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(FUZZED))
    parser.add_argument("--seconds", type=int, default=3600, help="for all scenarios together")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-switch"), metavar="DIR")
    parser.add_argument("--reproduce", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if unknown := set(options.scenarios) - set(FUZZED):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(FUZZED)}")
    compiler = Compiler.find()
    if compiler.driver:
        parser.error("clang is not on PATH: install the packages clang and libclang-rt-14-dev")
    names = options.scenarios or list(FUZZED)
    with tempfile.TemporaryDirectory() as directory:
        harness = compiler.harness(Path(directory))
        if options.reproduce:
            return reproduce(names[0], options.reproduce, harness, compiler)
        found = 0
        end = time.monotonic() + options.seconds
        for number, name in enumerate(names):
            left = int((end - time.monotonic()) / (len(names) - number))
            found += fuzz(name, max(LEAST_S, left), options.keep, harness, compiler)
    print(f"found {found or 'nothing'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
