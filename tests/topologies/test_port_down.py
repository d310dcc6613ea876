# SPDX-License-Identifier: Apache-2.0
"""When the carrier changed, by somebody who looks now and then: never later than it did."""

from __future__ import annotations

import time
from typing import cast

import pytest

from topologies.experiments import port_down
from topologies.netns import Namespace


class Port:
    """A port that answers these looks one after the other; `at_s`: when they were."""

    def __init__(self, *looks: bool) -> None:
        self.at_s: list[float] = []
        self._looks = iter(looks)

    def is_running(self, interface: str) -> bool:
        assert interface == "n1-1-eth3"
        self.at_s.append(time.monotonic())
        return next(self._looks)


def last_seen(port: Port, running: bool, seen: float) -> float:
    return port_down._last_seen(cast(Namespace, port), "n1-1-eth3", running, seen)


@pytest.mark.parametrize("running", [True, False])
def test_a_change_before_the_first_look_was_after_the_beginning(running: bool) -> None:
    began = time.monotonic()
    time.sleep(0.01)
    assert last_seen(Port(not running), running, began) == began


@pytest.mark.parametrize("running", [True, False])
def test_a_change_was_after_the_last_look_that_did_not_see_it(running: bool) -> None:
    port = Port(running, running, not running)
    found = last_seen(port, running, time.monotonic())
    assert port.at_s[0] < found <= port.at_s[1]
