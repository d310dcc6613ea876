# SPDX-License-Identifier: Apache-2.0
"""softswitch answers as BMv2 did: packets by port in order, and counters, for every scenario."""

from __future__ import annotations

import pytest

from tests.softswitch.differential import RECORDED, SCENARIOS, load, softswitch, visible


def test_every_scenario_is_recorded() -> None:
    assert {path.name.removesuffix(".json.gz") for path in RECORDED.iterdir()} == set(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_answers_as_bmv2(name: str) -> None:
    recording = load(name)
    with softswitch(SCENARIOS[name], recording.seed) as switch:
        for number, (port, data, answer) in enumerate(recording.packets):
            left = visible(switch.dataplane.process(port, data))
            assert left == answer, f"packet {number}, port {port}: {data.hex()}"
        digests = sum(map(len, recording.remains.digests.values()))
        assert switch.remains(digests) == recording.remains
    assert sum(bool(answer) for _, _, answer in recording.packets) > 10
