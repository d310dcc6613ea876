# SPDX-License-Identifier: Apache-2.0
"""Mutated WriteRequests through csrc/batch.c with address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from finsy.proto import p4r

from softswitch.batch import Planned
from softswitch.compile import C_DIR
from tests.softswitch.fuzzing import CHECKED, COMMON, SOURCES
from tests.softswitch.test_server_batch import Generator, stores

SEEDS = 60
MUTATIONS = 20_000


def write_plan(planned: Planned, path: Path) -> None:
    """The arrays of a plan as tests/softswitch/fuzz/decode.c reads them."""
    numbers = [*map(len, planned.arrays.values()), planned.longest_key, planned.longest_data]
    for array in planned.arrays.values():
        numbers += array
    path.write_bytes(b"".join(number.to_bytes(4, "little") for number in numbers))


def test_mutated_requests(tmp_path: Path) -> None:
    harness = tmp_path / "decode"
    subprocess.run(
        [
            *(shutil.which("gcc") or "gcc", *COMMON, *CHECKED, "-fsanitize=address,undefined"),
            *(f"-I{C_DIR}", "-o", str(harness)),
            *(str(SOURCES / "decode.c"), str(SOURCES / "standalone.c")),
        ],
        check=True,
    )
    generator = Generator(1, longest=12, errors=5)
    files = []
    with stores(1) as ((_, store),):
        assert store.planned is not None
        write_plan(store.planned, tmp_path / "tables")
        plain = 0
        for number in range(SEEDS):
            request = p4r.WriteRequest(device_id=1, updates=generator.batch())
            wire = request.SerializeToString()
            plain += sum(
                run.count
                for run in store.planned.decode(wire, len(request.updates)).runs
                if run.kind
            )
            files.append(tmp_path / f"{number:03}")
            files[-1].write_bytes(b"\0" + len(wire).to_bytes(2, "little") + wire)
        assert plain > SEEDS, "the seeds reach what is to be looked at"
    done = subprocess.run(
        [str(harness), "1", str(MUTATIONS), *map(str, files)],
        env={**os.environ, "SS_FUZZ_TABLES": str(tmp_path / "tables")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"{MUTATIONS} mutations" in done.stdout
