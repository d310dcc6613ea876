# SPDX-License-Identifier: Apache-2.0
"""The topology file: what is accepted, and that each refusal names file, line, key and limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from topologies.schema import (
    LinkRates,
    Topology,
    TopologyError,
    check_emulable,
    load_topology,
)

SHIPPED = Path(__file__).parents[2] / "topologies"
GOOD = """\
name: x
planes: 2
t0_per_plane: 2
t1_per_plane: 2
hosts_per_t0_group: 2
"""


def load(tmp_path: Path, text: str) -> Topology:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    return load_topology(path)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(TopologyError) as caught:
        load(tmp_path, text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("mini", (2, 2, 2, 2)), ("lab", (4, 2, 4, 2)), ("full-131k", (8, 512, 256, 256))],
)
def test_shipped_topologies(name: str, sizes: tuple[int, int, int, int]) -> None:
    topology = load_topology(SHIPPED / f"{name}.yaml")
    assert topology.name == name
    assert sizes == (
        topology.planes,
        topology.t0_per_plane,
        topology.t1_per_plane,
        topology.hosts_per_t0_group,
    )
    assert topology.block_bits == 0xFCBBBB00


def test_everything_may_be_given(tmp_path: Path) -> None:
    topology = load(
        tmp_path,
        GOOD
        + """\
block: 2001:db8::/32
mtu: 1500
queue_depth: 100
link_rates: {nic_t0: 1000, t0_t1: 500}
plane_sizes: {0: {t0: 2, t1: 2}, 1: {t0: 2, t1: 2}}
uplinks:
  - {t0: p1t0-0, uplink: 1, t1: p1t1-1}
""",
    )
    assert topology.link_rates == LinkRates(host_nic=None, nic_t0=1000, t0_t1=500)
    assert topology.host_mtu == 1460
    assert topology.block_bits == 0x20010DB8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("planes: 9", ["x.yaml:2: planes:", "less than or equal to 8", "got 9"]),
        ("planes: 0", ["planes:", "greater than or equal to 1"]),
        ("planes: two", ["planes:", "got 'two'"]),
        ("t0_per_plane: 1024", ["x.yaml:3: t0_per_plane:", "1023", "got 1024"]),
        ("hosts_per_t0_group: 1024", ["x.yaml:5: hosts_per_t0_group:", "1023"]),
        ("hosts_per_t0_group: 1022", ["1024 ports of a T0", "at most 1023 together"]),
        ("name: Üx", ["x.yaml:1: name:", "pattern"]),
    ],
)
def test_sizes_beyond_the_fields(tmp_path: Path, change: str, said: list[str]) -> None:
    key = change.split(":")[0]
    text = "\n".join(change if line.startswith(key) else line for line in GOOD.splitlines())
    message = refusal(tmp_path, text)
    assert all(part in message for part in said), message


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ("mtu: 1319\n", ["x.yaml:6: mtu:", "greater than or equal to 1320"]),
        ("mtu: 9217\n", ["mtu:", "less than or equal to 9216"]),
        ("colour: red\n", ["x.yaml:6: colour: unknown key", "t0_per_plane", "link_rates"]),
        ("link_rates: {t0: 1}\n", ["link_rates.t0: unknown key", "host_nic, nic_t0, t0_t1"]),
        ("link_rates: {t0_t1: 0}\n", ["link_rates.t0_t1:", "greater than or equal to 1"]),
        ("planes: 3\n", ["x.yaml:6: planes: given twice", "line 2"]),
        ("block: fcbb:bb00::/40\n", ["x.yaml:6: block:", "/40", "allowed: a unicast /32"]),
        ("block: fcbb:bb01::1/32\n", ["block:", "host bits set", "allowed"]),
        ("block: 10.0.0.0/8\n", ["block:", "not an IPv6 prefix", "allowed"]),
        ("block: ff02::/32\n", ["block:", "allowed: a unicast /32"]),
        ("block: fe80::/32\n", ["block:", "allowed: a unicast /32"]),
        ("block: ::/32\n", ["block:", "allowed: a unicast /32"]),
        ("block: fd4d:5243::/32\n", ["block:", "hosts' own addresses", "allowed"]),
        ("plane_sizes: {1: {t0: 3, t1: 2}}\n", ["plane 1 has 3 T0 and 2 T1", "all alike"]),
        ("plane_sizes: {2: {t0: 2, t1: 2}}\n", ["no plane 2", "allowed: 0..1"]),
    ],
)
def test_refusals(tmp_path: Path, extra: str, said: list[str]) -> None:
    message = refusal(tmp_path, GOOD + extra)
    assert all(part in message for part in said), message


@pytest.mark.parametrize(
    ("cable", "said"),
    [
        ("{t0: p0t0-0, uplink: 0, t1: p0t1-1}", "p0t0-0 goes to p0t1-1; allowed: p0t1-0"),
        ("{t0: p0t0-0, uplink: 1, t1: p1t1-1}", "goes to p1t1-1; allowed: p0t1-1"),
        ("{t0: p0t0-0, uplink: 2, t1: p0t1-2}", "no uplink 2; allowed: 0..1"),
        ("{t0: p0t0-2, uplink: 0, t1: p0t1-0}", "no T0 'p0t0-2'"),
        ("{t0: h0-0, uplink: 0, t1: p0t1-0}", "no T0 'h0-0'"),
    ],
)
def test_uplinks_not_wired_to_the_t1_of_their_number(tmp_path: Path, cable: str, said: str) -> None:
    good = "{t0: p1t0-1, uplink: 0, t1: p1t1-0}"
    message = refusal(tmp_path, f"{GOOD}uplinks:\n  - {good}\n  - {cable}\n")
    assert "x.yaml:6: uplinks: item 1:" in message
    assert said in message


def test_interface_names_over_15_characters(tmp_path: Path) -> None:
    sizes = "planes: 8\nt0_per_plane: 1001\nt1_per_plane: 64\nhosts_per_t0_group: 64\n"
    message = refusal(tmp_path, f"name: x\n{sizes}")
    assert "p7t0-1000-eth128 has 16 characters" in message
    assert "at most 15" in message


def test_missing_keys_and_all_complaints_at_once(tmp_path: Path) -> None:
    message = refusal(tmp_path, "name: x\nplanes: 9\nmtu: 3\n")
    assert len(message.splitlines()) == 5
    assert "x.yaml:1: t0_per_plane: this key is required" in message


@pytest.mark.parametrize("text", ["", "- a\n", "planes: [1\n", "a: &a [*a]\n"])
def test_what_is_no_mapping(tmp_path: Path, text: str) -> None:
    assert "x.yaml" in refusal(tmp_path, text)


def test_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"no\.yaml: cannot read"):
        load_topology(tmp_path / "no.yaml")


def test_full_size_is_computed_but_not_emulated() -> None:
    for name in ("mini", "lab"):
        check_emulable(load_topology(SHIPPED / f"{name}.yaml"))
    with pytest.raises(TopologyError) as caught:
        check_emulable(load_topology(SHIPPED / "full-131k.yaml"))
    message = str(caught.value)
    assert "a T0 would have 512 ports; allowed: at most 509" in message
    assert "a T1 would have 512 ports" in message
    assert "137216 switches and NICs" in message
