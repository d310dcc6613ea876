# SPDX-License-Identifier: Apache-2.0
"""The compiled feature programs belong to their sources, and every one has a scenario or a test."""

from __future__ import annotations

import hashlib
import json

from tests.softswitch.scenarios import FEATURES, PROGRAMS
from tests.softswitch.scenarios_copies import COPIES
from tests.softswitch.scenarios_wide import WIDE

SOURCES = PROGRAMS.parent


def test_digests_match_the_sources() -> None:
    lines = (PROGRAMS / "SHA256SUMS").read_text().splitlines()
    recorded = {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}
    sources = [*SOURCES.glob("*.p4"), *SOURCES.glob("include/*.p4")]
    actual = {
        str(path.relative_to(SOURCES)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sources
    }
    assert actual == recorded, "run tests/softswitch/programs/build.sh (needs p4c) and commit"


def test_each_program_is_used() -> None:
    names = {path.stem for path in SOURCES.glob("*.p4")}
    assert names == {path.stem for path in PROGRAMS.glob("*.json")}
    scenarios = (*FEATURES, *COPIES, *WIDE)
    assert names == {scenario.program or scenario.name for scenario in scenarios} | {
        "random",
        "beyond",
    }


def test_names_in_the_output_are_relative() -> None:
    for path in PROGRAMS.glob("*.json"):
        assert json.loads(path.read_text())["program"] == f"{path.stem}.p4"
