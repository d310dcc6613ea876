# SPDX-License-Identifier: Apache-2.0
"""The committed output of p4c belongs to the committed sources."""

import hashlib
from pathlib import Path

P4SRC = Path(__file__).parents[1] / "p4src"


def test_digests_match_the_sources() -> None:
    lines = (P4SRC / "build" / "SHA256SUMS").read_text().splitlines()
    recorded = {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}
    sources = [*P4SRC.glob("*.p4"), *P4SRC.glob("include/*.p4")]
    actual = {
        str(path.relative_to(P4SRC)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sources
    }
    assert actual == recorded, "P4 sources changed: run `make p4` (needs p4c) and commit the output"
