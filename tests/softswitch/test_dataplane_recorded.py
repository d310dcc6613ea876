# SPDX-License-Identifier: Apache-2.0
"""softswitch answers as BMv2 did: packets by port in order, and counters, for every scenario."""

from __future__ import annotations

import pytest

from tests.softswitch.differential import RECORDED, SCENARIOS, load, softswitch, visible
from tests.softswitch.scenarios import counter_values


def test_every_scenario_is_recorded() -> None:
    assert {path.name.removesuffix(".json.gz") for path in RECORDED.iterdir()} == set(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_answers_as_bmv2(name: str) -> None:
    recording = load(name)
    with softswitch(SCENARIOS[name]) as (dataplane, client):
        for number, (port, data, answer) in enumerate(recording.packets):
            left = visible(dataplane.process(port, data))
            assert left == answer, f"packet {number}, port {port}: {data.hex()}"
        assert counter_values(client) == recording.counters
    assert sum(bool(answer) for _, _, answer in recording.packets) > 10
