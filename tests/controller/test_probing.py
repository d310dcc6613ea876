# SPDX-License-Identifier: Apache-2.0
"""Which probes are sent, and what their answers become."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.addressing import DeviceKind
from controller.fabric import Fabric, FabricError
from controller.inventory import running_fabric
from controller.path import trace_t0_probe, trace_t1_probe
from controller.probing import ProbeReport, Selection, choose, run_probes
from controller.quality import host_path_quality, link_quality, nic_link_quality, path_quality
from controller.samples import ProbeKind
from mrc.messages import ProbeTarget
from tests.controller.conftest import MINI, FakeFabric
from tests.controller.fake_agent import RTT_NS
from topologies.schema import Topology, load_topology

FABRIC = Fabric.from_topology(load_topology(MINI))


def measure(fake: FakeFabric, selection: Selection, count: int = 10) -> ProbeReport:
    inventory = running_fabric(fake.run_dir)
    probes = choose(fake.fabric, selection)
    return asyncio.run(run_probes(inventory, fake.fabric, probes, count=count))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_every_path_and_link_is_chosen_once(planes: int, groups: int, t1s: int, hosts: int) -> None:
    topology = Topology(
        name="x",
        planes=planes,
        t0_per_plane=groups,
        t1_per_plane=t1s,
        hosts_per_t0_group=hosts,
    )
    fabric = Fabric.from_topology(topology)
    probes = choose(fabric, Selection())
    assert len(set(probes)) == len(probes)
    count = {kind: sum(probe.kind is kind for probe in probes) for kind in ProbeKind}
    total = groups * hosts
    assert count[ProbeKind.T0_SELF] == planes * total
    assert count[ProbeKind.T1_SELF] == planes * t1s * total
    across, within = total * (total - hosts), total * (hosts - 1)
    assert count[ProbeKind.PATH] == planes * (t1s * across + within)


def test_a_selection_is_what_was_asked_for() -> None:
    chosen = choose(FABRIC, Selection(["h0-0"], ["h0-1", "h1-1"], [1], [0], self_probes=False))
    assert [(p.src.name, p.dst.name, p.plane, p.uplink) for p in chosen] == [
        ("h0-0", "h0-1", 1, 0),
        ("h0-0", "h1-1", 1, 0),
    ]
    links = choose(FABRIC, Selection(["h0-0"], planes=[0], paths=False))
    assert [(p.kind, p.uplink) for p in links] == [
        (ProbeKind.T0_SELF, 0),
        (ProbeKind.T1_SELF, 0),
        (ProbeKind.T1_SELF, 1),
    ]


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        (Selection(sources=["h7-0"]), "no device 'h7-0'"),
        (Selection(destinations=["n0-0"]), "allowed: a host"),
        (Selection(planes=[2]), "no plane 2; allowed: 0..1"),
        (Selection(uplinks=[-1]), "no uplink -1"),
    ],
)
def test_a_selection_of_what_is_not_there(selection: Selection, says: str) -> None:
    with pytest.raises(FabricError, match=says):
        choose(FABRIC, selection)


def test_self_probes_go_out_on_carriers_that_lead_back(fake_fabric: FakeFabric) -> None:
    measure(fake_fabric, Selection(["h1-0"], paths=False))
    t0, t1 = fake_fabric.agents["h1-0"].requests
    assert [target.carrier for target in t0.targets] == [
        "fcbb:bb00:2001:6000::",
        "fcbb:bb00:2401:6400::",
    ]
    assert t1.targets[3].carrier == "fcbb:bb00:2401:4401:2401:6400::"
    nic = fake_fabric.fabric.device("n1-0")
    assert {target.mac for target in (*t0.targets, *t1.targets)} == {"02:18:00:00:08:01"}
    assert fake_fabric.fabric.mac(nic, 1) == 0x02_18_00_00_08_01
    for plane in range(2):
        assert trace_t0_probe(fake_fabric.fabric, "h1-0", plane).end is not None
        for uplink in range(2):
            assert trace_t1_probe(fake_fabric.fabric, "h1-0", plane, uplink).end is not None


def test_paths_are_probed_on_their_evs(fake_fabric: FakeFabric) -> None:
    measure(fake_fabric, Selection(["h0-0"], self_probes=False), count=3)
    (request,) = fake_fabric.agents["h0-0"].requests
    assert request.count == 3
    assert {target.address: target.path_evs for target in request.targets} == {
        "fd4d:5243::2": [0x0000, 0x2000],
        "fd4d:5243::1:1": [0x0000, 0x0008, 0x2000, 0x2008],
        "fd4d:5243::1:2": [0x0000, 0x0008, 0x2000, 0x2008],
    }


def test_the_rate_is_shared_by_the_hosts(fake_fabric: FakeFabric) -> None:
    measure(fake_fabric, Selection(paths=False))
    rates = {request.rate for a in fake_fabric.agents.values() for request in a.requests}
    assert rates == {1000.0 / 4}


def test_answers_become_samples(fake_fabric: FakeFabric) -> None:
    fabric = fake_fabric.fabric
    bad_path = 0x2008  # plane 1, uplink 1

    def lose(target: ProbeTarget, path_ev: int | None) -> int:
        if target.address == "fd4d:5243::1:1" and path_ev == bad_path:
            return 10
        return 4 if target.carrier == "fcbb:bb00:2000:4001:2000:6000::" else 0

    fake_fabric.agents["h0-0"].lose = lose
    report = measure(fake_fabric, Selection())
    assert not report.errors
    samples = report.samples
    assert len(samples) == 10 * len(choose(fabric, Selection()))
    expected = np.zeros((2, 2))
    expected[1, 1] = 1.0
    np.testing.assert_array_equal(host_path_quality(samples, fabric, 0, 2).loss, expected)
    np.testing.assert_array_equal(path_quality(samples, fabric, 0, 1).loss, expected / 4)
    links = link_quality(samples, fabric)
    assert links.loss[0, 0, 1] == pytest.approx(0.2)
    assert links.loss.sum() == pytest.approx(0.2)
    assert not nic_link_quality(samples, fabric).loss.any()
    assert np.nanmax(samples.rtt_s) == RTT_NS / 1e9


def test_probes_that_never_left_are_no_loss(fake_fabric: FakeFabric) -> None:
    fake_fabric.agents["h0-0"].unsent = 3
    report = measure(fake_fabric, Selection(["h0-0"], paths=False))
    assert report.unsent == 3 * 6
    assert len(report.samples) == 7 * 6
    assert not np.isnan(report.samples.rtt_s).any()


def test_one_agent_that_fails_does_not_stop_the_others(fake_fabric: FakeFabric) -> None:
    fake_fabric.agents["h0-1"].refuse = "no route"
    report = measure(fake_fabric, Selection(paths=False))
    assert list(report.errors) == ["h0-1"]
    assert "no route" in report.errors["h0-1"]
    assert set(report.samples.src.tolist()) == {0, 2, 3}


def test_hosts_that_do_not_run_are_named(fake_fabric: FakeFabric) -> None:
    inventory = running_fabric(fake_fabric.run_dir)
    hosts = {name: host for name, host in inventory.hosts.items() if name != "h1-1"}
    smaller = inventory.model_copy(update={"hosts": hosts})
    probes = choose(fake_fabric.fabric, Selection())
    with pytest.raises(FabricError, match="not in the running fabric: h1-1"):
        asyncio.run(run_probes(smaller, fake_fabric.fabric, probes))
    assert len(list(FABRIC.devices(DeviceKind.HOST))) == 4
