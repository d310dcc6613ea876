# SPDX-License-Identifier: Apache-2.0
"""What the agent's commands allow and how they say no."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mrc.messages import (
    MessageError,
    ProbeRequest,
    ProbeResult,
    ProbeTarget,
    RegisterRequest,
    WriteRequest,
)

MAC = "02:00:00:00:00:01"
WRITE: dict[str, Any] = {
    "address": "fd4d:5243::1:1",
    "mac": MAC,
    "qp": 17,
    "va": 0,
    "rkey": 1,
    "length": 100,
    "seed": 0,
}


def test_round_trip_through_json() -> None:
    write = WriteRequest(**WRITE, ranges=[[0, 4]], first_psn=1, msn=2, rate=1000)
    assert WriteRequest.from_json(json.loads(json.dumps(write.to_json()))) == write
    probe = ProbeRequest(
        targets=[
            ProbeTarget(mac=MAC, address="::1", path_evs=[1, 2]),
            ProbeTarget(mac=MAC, carrier="fcbb:bb00:2000:6000::"),
        ],
        count=3,
    )
    assert ProbeRequest.from_json(json.loads(json.dumps(probe.to_json()))) == probe
    empty = ProbeResult(5, [])
    assert ProbeResult.from_json(empty.to_json()) == empty


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qp": 1 << 24}, r"qp = 16777216: must be an integer 0\.\.16777215"),
        ({"qp": True}, "qp = True: must be an integer"),
        ({"address": "10.0.0.1"}, "address = '10.0.0.1': must be an IPv6 address as text"),
        ({"address": 5}, "must be an IPv6 address"),
        ({"mac": "02:00"}, "must be a MAC address like 02:00:00:00:00:01"),
        ({"mac": "02:00:00:00:00:0g"}, "must be a MAC address"),
        ({"length": 0}, r"length = 0: must be an integer 1\.\."),
        ({"payload": 1500}, r"payload = 1500: must be one of \(256, 512, 1024, 2048, 4096\)"),
        ({"rate": "fast"}, "rate = 'fast': must be a number 0.1..1e"),
        ({"path_ev": -1}, "path_ev = -1"),
        ({"ranges": []}, r"ranges = \[\]: must be a list of at least one \[offset, length\]"),
        ({"ranges": [[0, 4]]}, "ranges need first_psn and msn"),
        ({"ranges": [[98, 4]], "first_psn": 0, "msn": 0}, "nor go beyond the message, which has"),
        ({"ranges": [[5, 0]], "first_psn": 0, "msn": 0}, "must not be empty"),
        ({"va": (1 << 64) - 10}, "exceed 64 bits"),
        ({"speed": 5}, "unknown parameter 'speed': allowed are address, mac, qp, "),
    ],
)
def test_a_bad_write_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(MessageError, match=message):
        WriteRequest.from_json({**WRITE, **change})


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(MessageError, match="parameter 'length' is missing: allowed are length, va"):
        RegisterRequest.from_json({})


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([], "at least one target"),
        ("x", "at least one target"),
        ([5], r"targets\[0\] = 5: must be an object"),
        ([{"mac": MAC}], r"targets\[0\]: a target has either address and path_evs, or carrier"),
        ([{"mac": MAC, "address": "::1"}], "either"),
        ([{"mac": MAC, "address": "::1", "path_evs": [1], "carrier": "::2"}], "either"),
        ([{"mac": MAC, "address": "::1", "path_evs": []}], "at least one path EV"),
        ([{"mac": MAC, "address": "::1", "path_evs": [65536]}], r"each 0\.\.65535"),
        ([{"mac": MAC, "carrier": "x"}], "carrier = 'x': must be an IPv6 address"),
    ],
)
def test_bad_targets_are_named(targets: Any, message: str) -> None:
    with pytest.raises(MessageError, match=message):
        ProbeRequest.from_json({"targets": targets})
