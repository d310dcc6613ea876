# SPDX-License-Identifier: Apache-2.0
"""Programs with something wrong in them: refused by name, or translated to C that compiles."""

from __future__ import annotations

import json
import random
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.bmread import read_program
from softswitch.codegen import translate
from softswitch.compile import C_DIR
from softswitch.errors import BadProgram, Unsupported
from tests.softswitch.mutations import changed_json, paths
from tests.softswitch.scenarios import PROGRAMS

NAMES = sorted(path.stem for path in PROGRAMS.glob("*.json"))
COMPILED = 24
"""One in so many is compiled: that takes longer than all the rest."""


@cache
def program(name: str) -> tuple[Any, list[tuple[Any, ...]]]:
    content = json.loads((PROGRAMS / f"{name}.json").read_text())
    return content, [path for path in paths(content) if "source_info" not in path]


def translated(content: bytes) -> str:
    """The C source; empty: refused."""
    try:
        return translate(read_program(content)).source
    except (BadProgram, Unsupported) as error:
        assert len(str(error)) > 5
        return ""


def compiles(source: str, directory: Path) -> None:
    file = directory / "program.c"
    file.write_text(source)
    command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-w", f"-I{C_DIR}", "-fsyntax-only", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 1 << 32))
def test_changed_programs(name: str, seed: int) -> None:
    content, places = program(name)
    translated(json.dumps(changed_json(random.Random(seed), content, places)).encode())


def test_what_is_translated_compiles(tmp_path: Path) -> None:
    count = 0
    for seed in range(200):
        source = random.Random(seed)
        content, places = program(source.choice(NAMES))
        if text := translated(json.dumps(changed_json(source, content, places)).encode()):
            count += 1
            if count % COMPILED == 1:
                compiles(text, tmp_path)
    assert count > COMPILED


@given(content=st.binary(max_size=100) | st.text(max_size=100).map(str.encode))
def test_not_json(content: bytes) -> None:
    translated(content)
