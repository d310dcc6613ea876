# SPDX-License-Identifier: Apache-2.0
"""A short fuzzing run with gcc; scripts/fuzz_switch.py runs long ones with clang's libFuzzer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.softswitch.differential import SCENARIOS
from tests.softswitch.fuzzing import Compiler, make_ready

GCC = Compiler.gcc("standalone.c")
NAMES = (
    "parser",
    "match",
    "selector",
    "state",
    "clone",
    "multicast",
    "loops",
    "nic",
    "unions",
    "varbit",
)
MUTATIONS = 3000
ASAN = "detect_leaks=1:detect_stack_use_after_return=0"


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return GCC.harness(tmp_path_factory.mktemp("harness"))


def run(harness: Path, directory: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    files = sorted(str(path) for path in (directory / "seeds").iterdir())
    command = [str(harness), "1", str(MUTATIONS), *files]
    env = {**env, "ASAN_OPTIONS": ASAN}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize("name", NAMES)
def test_mutated_inputs(harness: Path, tmp_path: Path, name: str) -> None:
    done = run(harness, tmp_path, make_ready(SCENARIOS[name], GCC, tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"{MUTATIONS} mutations" in done.stdout


def test_an_error_is_noticed(harness: Path, tmp_path: Path) -> None:
    """A parser that takes packets for a byte longer than they are."""
    env = make_ready(SCENARIOS["control"], GCC, tmp_path)
    source = (tmp_path / "program.c").read_text()
    broken = source.replace("uint32_t left = p->len;", "uint32_t left = p->len + 1;")
    assert broken != source
    GCC.program(broken, tmp_path)
    done = run(harness, tmp_path, env)
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr
