# SPDX-License-Identifier: Apache-2.0
"""Weights of a selector without max_group_size: large ones are quick, those beyond are refused."""

from __future__ import annotations

import time
from typing import Any

import pytest
from finsy.proto import p4r

from softswitch.dataplane import Dataplane
from softswitch.values import DataplaneOptions
from tests.softswitch.dataplanes import CPU_PORT
from tests.softswitch.differential import SCENARIOS, config_of
from tests.softswitch.p4rt import INSERT, RawClient, only_error, primary, update

LARGEST = 1 << 16


def group(client: RawClient, number: int, *weights: int) -> Any:
    message = p4r.ActionProfileGroup(
        action_profile_id=client.id("action_profiles", "choices"), group_id=number
    )
    for member, weight in enumerate(weights, 1):
        message.members.add(member_id=member, weight=weight)
    return update(INSERT, action_profile_group=message)


def one_shot(client: RawClient, *weights: int) -> Any:
    entry = client.entry("choosing", {"h.probe.x": 1})
    for weight in weights:
        action = entry.action.action_profile_action_set.action_profile_actions.add(weight=weight)
        action.action.CopyFrom(client.action("drop"))
    return update(INSERT, table_entry=entry)


@pytest.mark.parametrize("weights", [((1 << 31) - 1,), (LARGEST, 1)])
def test_weights_have_a_limit(weights: tuple[int, ...]) -> None:
    dataplane = Dataplane(DataplaneOptions(cpu_port=CPU_PORT))
    with primary(dataplane, config_of(SCENARIOS["selector"])) as client:
        started = time.monotonic()
        for number in (1, 2):
            member = p4r.ActionProfileMember(
                action_profile_id=client.id("action_profiles", "choices"),
                member_id=number,
                action=client.action("drop"),
            )
            client.write(update(INSERT, action_profile_member=member))
        code, message = only_error(client, group(client, 1, *weights))
        assert (code, f"at most {LARGEST}" in message) == ("RESOURCE_EXHAUSTED", True)
        client.write(group(client, 2, LARGEST))
        assert time.monotonic() - started < 5
    dataplane.close()


def test_weights_of_an_action_set_too() -> None:
    dataplane = Dataplane(DataplaneOptions(cpu_port=CPU_PORT))
    with primary(dataplane, config_of(SCENARIOS["selector"])) as client:
        code, message = only_error(client, one_shot(client, LARGEST, 1))
        assert (code, f"at most {LARGEST}" in message) == ("RESOURCE_EXHAUSTED", True)
        client.write(one_shot(client, LARGEST - 1, 1))
    dataplane.close()
