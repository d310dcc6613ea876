# SPDX-License-Identifier: Apache-2.0
"""Policy files, and what a policy means for a fabric."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from controller.overlay import Overlay, bind
from controller.policy import Deny, PathWeight, Policy, PolicyError, Queues, Spray, load_policy
from tests.controller.strategies import fabric_of, shipped

EXAMPLE = """\
version: 1
spray: {mode: round_robin, slots_per_plane: 64}
plane_weights: {0: 2, 3: 0.5}
path_weights:
  - {plane: 0, uplink: 1, weight: 0.5}
  - {plane: 0, uplink: 2, weight: 0, from_group: 0, to_group: 1}
deny:
  planes: [2]
  switches: [p0t1-3]
  links: [[p0t0-0, p0t1-1], [h0-1, p1t0-0]]
queues: {ecn_mark_mode: none, packet_trim_threshold: 90}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    return path


def test_a_whole_policy(tmp_path: Path) -> None:
    policy = load_policy(write(tmp_path, EXAMPLE))
    assert policy == Policy(
        spray=Spray(mode="round_robin", slots_per_plane=64),
        plane_weights={0: 2.0, 3: 0.5},
        path_weights=(
            PathWeight(plane=0, uplink=1, weight=0.5),
            PathWeight(plane=0, uplink=2, weight=0, from_group=0, to_group=1),
        ),
        deny=Deny(
            planes=(2,),
            switches=("p0t1-3",),
            links=(("p0t0-0", "p0t1-1"), ("h0-1", "p1t0-0")),
        ),
        queues=Queues(ecn_mark_mode="none", packet_trim_threshold=90),
    )
    assert load_policy(write(tmp_path, "version: 1\n")) == Policy()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spray: {mode: random}\n", "policy.yaml:1: version: this key is required"),
        ("version: 2\n", "policy.yaml:1: version: Input should be 1, got 2"),
        ("version: 1\nspray: {mode: fast}\n", "'random', 'round_robin' or 'ecmp', got 'fast'"),
        ("version: 1\nspray: {slots_per_plane: 12}\n", "12 is not a power of two; allowed: 1, 2"),
        ("version: 1\nspray: {ev_min_active: 0}\n", "policy.yaml:2: spray.ev_min_active: "),
        ("version: 1\nspray: {ev_min_active: 4097}\n", "less than or equal to 4096, got 4097"),
        ("version: 1\nspray: {ev_min_active: 1.5}\n", "a valid integer, got 1.5"),
        ("version: 1\nspray: {probe_successes: 0}\n", "greater than or equal to 1, got 0"),
        (
            "version: 1\nspray:\n  probe_successes: 16\n",
            "policy.yaml:3: spray.probe_successes: Input should be less than or equal to 15",
        ),
        ("version: 1\nspray: {probe_successes: [3]}\n", "policy.yaml:2: spray.probe_successes:"),
        ("version: 1\nspray: {slots: 8}\n", "policy.yaml:2: spray.slots: unknown key"),
        ("version: 1\nplane_weights: {0: -1}\n", "policy.yaml:2: plane_weights.0:"),
        ("version: 1\nplane_weights: {0: .inf}\n", "policy.yaml:2: plane_weights.0:"),
        ("version: 1\npath_weights:\n  - {plane: 0, uplink: 1}\n", "policy.yaml:3: path_weights.0"),
        ("version: 1\ndeny: {links: [[p0t0-0]]}\n", "policy.yaml:2: deny.links.0"),
        ("version: 1\ndeny: {switch: [a]}\n", "allowed keys: planes, switches, links"),
        ("version: 1\nqueues: {ecn_mark: 1}\n", "allowed keys: ecn_mark_mode, ecn_min_threshold"),
        ("version: 1\nqueues: {ecn_max_threshold: 101}\n", "policy.yaml:2: queues.ecn_max_thresh"),
        (
            "version: 1\nqueues:\n  ecn_min_threshold: 80\n  ecn_max_threshold: 60\n",
            "policy.yaml:4: queues.ecn_max_threshold: 60 is less than ecn_min_threshold 80",
        ),
        ("version: 1\nqueues: {ecn_max_threshold: 10}\n", "10 is less than ecn_min_threshold 25"),
        ("version: 1\nqueues: {packet_trim_size: 121}\n", "greater than or equal to 122, got 121"),
        ("version: 1\nqueues: {packet_admission_fail_action: trim}\n", "'drop_and_trim' or 'drop'"),
        ("", "a policy is a mapping, found nothing"),
    ],
)
def test_refused_files(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load_policy(write(tmp_path, text))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy(plane_weights={4: 1}), "plane_weights.4: lab has no plane 4; allowed: 0..3"),
        (
            Policy(path_weights=(PathWeight(plane=0, uplink=4, weight=1),)),
            "path_weights.0.uplink: lab has no uplink 4; allowed: 0..3",
        ),
        (
            Policy(path_weights=(PathWeight(plane=0, uplink=0, weight=1, to_group=2),)),
            "path_weights.0.to_group: lab has no T0 group 2; allowed: 0..1",
        ),
        (Policy(deny=Deny(planes=(7,))), "deny.planes.0: lab has no plane 7"),
        (Policy(deny=Deny(switches=("p0t1-4",))), "deny.switches.0: lab has no device 'p0t1-4'"),
        (Policy(deny=Deny(switches=("h0-0",))), "deny.switches.0: h0-0 is a HOST"),
        (Policy(deny=Deny(links=(("p0t0-0", "p1t1-0"),))), "deny.links.0: p0t0-0 and p1t1-0 are"),
        (Policy(deny=Deny(links=(("h1-0", "p0t0-0"),))), "not linked; allowed: a T0 with a T1"),
        (Policy(deny=Deny(links=(("p0t0-0", "p0t0-0"),))), "not linked"),
        (Policy(deny=Deny(links=(("h0-0", "n0-0"),))), "not linked"),
        (Policy(deny=Deny(links=(("h0-0", "p0t9-0"),))), "no device 'p0t9-0'; did you mean"),
    ],
)
def test_names_and_numbers_that_the_fabric_lacks(policy: Policy, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        bind(policy, shipped("lab"))
    assert said in str(caught.value)


def test_what_denials_mean() -> None:
    lab = shipped("lab")
    policy = Policy(
        deny=Deny(
            planes=(2,),
            switches=("p0t1-3", "p3t0-1"),
            links=(("p0t1-1", "p0t0-0"), ("h0-1", "p1t0-0")),
        )
    )
    overlay = bind(policy, lab)
    usable = overlay.path_weights(0, 1) > 0
    assert usable.tolist() == [
        [True, False, True, False],
        [True, True, True, True],
        [False] * 4,
        [False] * 4,
    ]
    assert np.array_equal(overlay.path_weights(1, 0) > 0, usable)

    def planes(src: str, dst: str) -> list[int]:
        between = overlay.planes_between(lab.device(src), lab.device(dst))
        return np.flatnonzero(between).tolist()

    assert planes("h0-0", "h1-0") == [0, 1]
    assert planes("h0-1", "h1-0") == planes("h1-0", "h0-1") == [0]
    assert planes("h0-0", "h0-1") == [0, 3]
    assert planes("h1-0", "h1-1") == [0, 1]
    assert overlay.denied_links()[0].tolist() == [
        [False, True, False, True],
        [False, False, False, True],
    ]
    assert overlay.denied_paths(0, 1)[0].tolist() == [False, True, False, True]


def test_the_last_matching_path_weight_counts() -> None:
    def weight(*entries: PathWeight) -> float:
        overlay = bind(Policy(path_weights=entries), shipped("mini"))
        return float(overlay.path_weights(0, 1)[0, 0])

    general = PathWeight(plane=0, uplink=0, weight=3)
    special = PathWeight(plane=0, uplink=0, weight=5, from_group=0)
    other = PathWeight(plane=0, uplink=0, weight=7, from_group=1)
    assert weight() == 1
    assert weight(general) == 3
    assert weight(general, special, other) == 5
    assert weight(special, general) == 3


@pytest.mark.parametrize(
    ("policy", "pair"),
    [
        (Policy(deny=Deny(planes=(0, 1))), "from h0-0 to h0-1"),
        (Policy(plane_weights={0: 0, 1: 0}), "from h0-0 to h0-1"),
        (Policy(deny=Deny(switches=("p0t0-1", "p1t0-1"))), "from h0-0 to h1-0"),
        (
            Policy(deny=Deny(switches=("p0t1-0", "p0t1-1"), planes=(1,))),
            "from h0-0 to h1-0",
        ),
        (
            Policy(deny=Deny(links=(("h1-1", "p0t0-1"), ("n1-1", "p1t0-1")))),
            "from h0-0 to h1-1",
        ),
        # h0-0 has plane 1 only and h1-1 plane 0 only.
        (
            Policy(deny=Deny(links=(("h0-0", "p0t0-0"), ("h1-1", "p1t0-1")))),
            "from h0-0 to h1-1",
        ),
        # The same within a group.
        (
            Policy(deny=Deny(links=(("h0-0", "p0t0-0"), ("h0-1", "p1t0-0")))),
            "from h0-0 to h0-1",
        ),
        # One direction only.
        (
            Policy(
                deny=Deny(planes=(1,)),
                path_weights=tuple(
                    PathWeight(plane=0, uplink=u, weight=0, from_group=1, to_group=0)
                    for u in range(2)
                ),
            ),
            "from h1-0 to h0-0",
        ),
    ],
)
def test_a_pair_without_a_path_is_named(policy: Policy, pair: str) -> None:
    with pytest.raises(PolicyError, match=f"leaves no path {pair} on mini; allowed"):
        bind(policy, shipped("mini"))


def test_a_pair_that_shares_one_path_is_enough() -> None:
    policy = Policy(deny=Deny(links=(("h0-0", "p0t0-0"), ("h1-1", "p0t0-1"))))
    overlay = bind(policy, shipped("mini"))
    assert isinstance(overlay, Overlay)
    # A fabric with a single host has no pairs.
    bind(Policy(deny=Deny(planes=(0,))), fabric_of(1, 1, 1, 1))


def test_full_size_is_checked_in_seconds() -> None:
    fabric = shipped("full-131k")
    links = tuple((f"h{g}-{g % 256}", f"p{g % 8}t0-{g}") for g in range(512))
    policy = Policy(
        deny=Deny(switches=tuple(f"p3t1-{u}" for u in range(256)), links=links),
        path_weights=(PathWeight(plane=0, uplink=9, weight=0.5, from_group=7),),
    )
    start = time.monotonic()
    overlay = bind(policy, fabric)
    seconds = time.monotonic() - start
    print(f"full-131k: policy bound in {seconds:.2f} s")
    assert overlay.path_weights(0, 1)[3].sum() == 0
    assert seconds < 20
    with pytest.raises(PolicyError, match="leaves no path from h0-0 to h511-255"):
        bind(Policy(deny=Deny(links=tuple(("h511-255", f"p{p}t0-511") for p in range(8)))), fabric)
