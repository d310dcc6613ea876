# SPDX-License-Identifier: Apache-2.0
"""p4lang/ptf's own runner and data plane against softswitch, without a change to either."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.net.test_switch_ports import PAIRS, links
from tests.softswitch.p4rt import DATA
from tests.softswitch.test_server_process import switch

__all__ = ["links"]
TESTS = Path(__file__).parent / "ptf_style"
TIMEOUT_S = 90


def test_ptf(links: None, tmp_path: Path) -> None:
    del links
    interfaces = [f"{number}@{ours}" for number, (ours, _) in enumerate(PAIRS, start=1)]
    ends = [f"{number}@{peer}" for number, (_, peer) in enumerate(PAIRS, start=1)]
    arguments = [part for interface in interfaces for part in ("-i", interface)]
    with switch("--no-p4", "--device-id", "1", *arguments, target=("--cpu-port", "510")) as (
        process,
        address,
    ):
        parameters = {
            "grpcaddr": address,
            "p4info": str(DATA / "entities.p4info.txtpb"),
            "config": str(DATA / "entities.json"),
        }
        done = subprocess.run(
            [
                *(sys.executable, str(Path(sys.executable).with_name("ptf"))),
                *("--test-dir", str(TESTS), "--log-dir", str(tmp_path)),
                *(part for end in ends for part in ("--interface", end)),
                "--test-params=" + ";".join(f"{k}={v!r}" for k, v in parameters.items()),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Ran 4 tests" in done.stderr + done.stdout
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
