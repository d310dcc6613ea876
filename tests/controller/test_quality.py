# SPDX-License-Identifier: Apache-2.0
"""Samples and their files, and the quality that follows from them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fabric import Fabric
from controller.quality import (
    Grade,
    Quality,
    Thresholds,
    host_path_quality,
    link_quality,
    nic_link_quality,
    path_quality,
)
from controller.samples import (
    COLUMNS,
    ProbeKind,
    SampleLog,
    Samples,
    SamplesError,
    load_samples,
    save_samples,
    shape_of,
)
from tests.controller.strategies import shipped

STARTED = 1_790_000_000.25


def some_samples(fabric: Fabric) -> Samples:
    log = SampleLog(fabric, STARTED)
    h00, h01, h10 = (fabric.host(name) for name in ("h0-0", "h0-1", "h1-0"))
    log.add(ProbeKind.PATH, h00, h10, 0, 1, [0.001, None, 0.003, 0.002])
    log.add(ProbeKind.PATH, h01, h10, 0, 1, [0.010])
    log.add(ProbeKind.PATH, h00, h10, 1, 0, [None, None])
    log.add(ProbeKind.PATH, h10, h00, 1, 0, [0.5])
    log.add(ProbeKind.PATH, h00, h01, 1, 0, [0.004])
    log.add(ProbeKind.T0_SELF, h00, h00, 0, 0, [0.001, 0.001])
    log.add(ProbeKind.T1_SELF, h00, h00, 0, 1, [0.002])
    return log.finish(STARTED + 2)


def test_paths_by_hand() -> None:
    mini = shipped("mini")
    samples = some_samples(mini)
    quality = path_quality(samples, mini, 0, 1)
    assert quality.sent.tolist() == [[0, 5], [2, 0]]
    assert quality.loss[0, 1] == pytest.approx(0.2)
    assert quality.loss[1, 0] == 1
    assert quality.rtt_median_s[0, 1] == pytest.approx(0.0025)
    assert quality.rtt_p99_s[0, 1] == pytest.approx(0.010)
    # All lost: a loss, but no round trip. Not probed: neither.
    assert np.isnan(quality.rtt_median_s[1, 0])
    assert np.isnan(quality.loss[0, 0])
    assert np.isnan(quality.rtt_p99_s[0, 0])

    assert path_quality(samples, mini, 1, 0).sent.tolist() == [[0, 0], [1, 0]]
    local = path_quality(samples, mini, 0, 0)
    assert local.sent.tolist() == [[0], [1]]
    one = host_path_quality(samples, mini, 1, 2)
    assert one.sent.tolist() == [[0, 1], [0, 0]]
    assert host_path_quality(samples, mini, 0, 1).sent.tolist() == [[0], [1]]


@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.none() | st.floats(1e-6, 1.0)), min_size=1, max_size=200
    )
)
def test_statistics_agree_with_numpy(probes: list[tuple[int, float | None]]) -> None:
    lab = shipped("lab")
    log = SampleLog(lab, 0)
    host = lab.host("h0-0")
    for cell, rtt in probes:
        log.add(ProbeKind.T1_SELF, host, host, cell // 4, cell % 4, [rtt])
    quality = link_quality(log.finish(1), lab)
    for cell in range(8):
        at = (cell // 4, 0, cell % 4)
        rtts = [rtt for where, rtt in probes if where == cell]
        answered = [rtt for rtt in rtts if rtt is not None]
        assert quality.sent[at] == len(rtts)
        if rtts:
            assert quality.loss[at] == pytest.approx(1 - len(answered) / len(rtts))
        else:
            assert np.isnan(quality.loss[at])
        if answered:
            assert quality.rtt_median_s[at] == pytest.approx(np.median(answered))
            rank = sorted(answered)[int(np.ceil(0.99 * len(answered))) - 1]
            assert quality.rtt_p99_s[at] == rank
        else:
            assert np.isnan(quality.rtt_median_s[at])


def self_probes(fabric: Fabric, t0_lost: dict[str, int], t1_lost: dict[str, int]) -> Samples:
    """100 probes of each kind on plane 0, uplink 0, of which so many are lost, by host."""
    log = SampleLog(fabric, 0)
    for kind, losses in ((ProbeKind.T0_SELF, t0_lost), (ProbeKind.T1_SELF, t1_lost)):
        for name, lost in losses.items():
            host = fabric.host(name)
            log.add(kind, host, host, 0, 0, [None] * lost + [0.001] * (100 - lost))
    return log.finish(1)


def test_a_hosts_own_link_is_not_blamed_on_the_links_behind() -> None:
    mini = shipped("mini")

    def loss(t0_lost: dict[str, int], t1_lost: dict[str, int]) -> float:
        return float(link_quality(self_probes(mini, t0_lost, t1_lost), mini).loss[0, 0, 0])

    # h0-0's own link loses a tenth; behind it nothing is lost, or a fifth.
    assert loss({"h0-0": 10}, {"h0-0": 10}) == pytest.approx(0)
    assert loss({"h0-0": 10}, {"h0-0": 28}) == pytest.approx(0.2)
    # Without T0 probes the own link is taken as good.
    assert loss({}, {"h0-0": 28}) == pytest.approx(0.28)
    # A host that is cut off says nothing; another one of the group does.
    assert np.isnan(loss({"h0-0": 100}, {"h0-0": 100}))
    assert loss({"h0-0": 100, "h0-1": 0}, {"h0-0": 100, "h0-1": 3}) == pytest.approx(0.03)
    # Chance may answer more T1 than T0 probes: no negative loss.
    assert loss({"h0-0": 10}, {"h0-0": 0}) == 0

    samples = self_probes(mini, {"h0-0": 10, "h1-1": 0}, {})
    own = nic_link_quality(samples, mini)
    assert own.loss[0].tolist()[0] == pytest.approx(0.1)
    assert own.loss[0].tolist()[3] == 0
    assert own.sent.sum() == 200


def test_grades() -> None:
    nan = float("nan")
    loss = np.array([nan, 0, 0.001, 0.01, 1.0, 0.0, 0.0, 0.0])
    rtt = np.array([nan, 1e-3, 1e-3, 1e-3, nan, 2.9e-3, 3e-3, 10e-3])
    quality = Quality(np.array([0, 9, 9, 9, 9, 9, 9, 9]), loss, rtt, rtt)
    expected = [
        *(Grade.NO_DATA, Grade.GOOD, Grade.DEGRADED, Grade.BAD, Grade.BAD),
        *(Grade.GOOD, Grade.DEGRADED, Grade.BAD),
    ]
    assert quality.grades(Thresholds(), 1e-3).tolist() == expected
    assert quality.reference_rtt_s() == pytest.approx(1.95e-3)
    assert set(quality.grades(Thresholds(min_probes=10), 1e-3).tolist()) == {Grade.NO_DATA}
    # Nothing was answered: loss alone decides.
    dead = Quality(np.array([3, 0]), np.array([1.0, nan]), np.array([nan, nan]), rtt[:2])
    assert dead.grades(Thresholds(), dead.reference_rtt_s()).tolist() == [3, 0]


@pytest.mark.parametrize(
    "arguments",
    [
        {"loss_degraded": 0},
        {"loss_bad": 1.5},
        {"rtt_degraded": 1},
        {"rtt_bad": 2},
        {"min_probes": 0},
    ],
)
def test_thresholds_that_make_no_sense(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        Thresholds(**arguments)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_files_round_trip(tmp_path: Path, suffix: str) -> None:
    samples = some_samples(shipped("mini"))
    path = tmp_path / f"samples{suffix}"
    save_samples(samples, path)
    loaded = load_samples(path)
    assert (loaded.fabric, loaded.shape) == ("mini", (2, 2, 2, 2))
    assert (loaded.started, loaded.finished) == (STARTED, STARTED + 2)
    for column in COLUMNS:
        assert np.array_equal(getattr(loaded, column), getattr(samples, column), equal_nan=True)


def test_samples_of_another_fabric_are_refused() -> None:
    samples = some_samples(shipped("mini"))
    with pytest.raises(SamplesError, match=r"of fabric mini \(2 planes.*allowed: lab \(4 planes"):
        link_quality(samples, shipped("lab"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "x"}, "format: not a samples file"),
        ({"version": 2}, "version: 2 is unknown; allowed: 1"),
        ({"shape": [2, 2, 2]}, r"shape: \[2, 2, 2\]; allowed"),
        ({"shape": [2, 2, 1, 2]}, "uplink 0 is 1.0; allowed: whole numbers 0..0"),
        ({"fabric": None}, "fabric: None; allowed: the fabric's name"),
        ({"started": "yesterday"}, "started: 'yesterday'; allowed: ISO 8601"),
        ({"started": "2026-01-01T00:00:00"}, "started: .* allowed: ISO 8601 with a time zone"),
        ({"finished": "2001-01-01T00:00:00+00:00"}, "finished before started"),
        ({"probes": 3}, "probes: no such mapping; allowed: kind, src"),
    ],
)
def test_bad_headers(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "samples.json"
    save_samples(some_samples(shipped("mini")), path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(SamplesError, match=rf"samples\.json: .*{said}"):
        load_samples(path)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("kind", "FAST", "probes.kind 0: 'FAST'; allowed: T0_SELF, T1_SELF, PATH"),
        ("src", 4, "src 0 is 4.0; allowed: whole numbers 0..3"),
        ("plane", 0.5, "plane 0 is 0.5; allowed: whole numbers 0..1"),
        ("plane", None, "probes.plane 0: None; allowed: numbers"),
        ("uplink", -1, "uplink 0 is -1.0"),
        ("rtt_s", -1, "rtt_s 0 is -1.0; allowed: seconds >= 0"),
        ("rtt_s", "1", "probes.rtt_s 0: '1'; allowed: numbers"),
        ("rtt_s", float("inf"), "rtt_s 0 is inf"),
    ],
)
def test_bad_columns(tmp_path: Path, column: str, value: Any, said: str) -> None:
    path = tmp_path / "samples.json"
    save_samples(some_samples(shipped("mini")), path)
    document = json.loads(path.read_text())
    document["probes"][column][0] = value
    path.write_text(json.dumps(document))
    with pytest.raises(SamplesError) as caught:
        load_samples(path)
    assert said in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    samples = some_samples(shipped("mini"))
    with pytest.raises(SamplesError, match=r"samples as \.csv; allowed: \.json, \.npz"):
        save_samples(samples, tmp_path / "x.csv")
    with pytest.raises(SamplesError, match="cannot read"):
        load_samples(tmp_path / "none.json")
    for suffix in ("json", "npz"):
        path = tmp_path / f"broken.{suffix}"
        path.write_text("{")
        with pytest.raises(SamplesError, match="broken"):
            load_samples(path)
    np.savez(tmp_path / "partial.npz", kind=np.zeros(1))
    with pytest.raises(SamplesError, match=r"header.* is missing"):
        load_samples(tmp_path / "partial.npz")
    document = {"format": "mrc-fabric probe samples", "version": 1, "probes": {"kind": []}}
    (tmp_path / "short.json").write_text(json.dumps(document))
    with pytest.raises(SamplesError, match="'src' is missing"):
        load_samples(tmp_path / "short.json")


def test_a_million_samples_in_seconds() -> None:
    full = shipped("full-131k")
    generator = np.random.default_rng(1)
    planes, groups, uplinks, hosts = shape_of(full)
    link = np.arange(planes * groups * uplinks)
    src = link // uplinks % groups * hosts
    rtt = generator.lognormal(np.log(10e-6), 0.1, len(link))
    rtt[12345] = np.nan
    samples = Samples(
        fabric=full.name,
        shape=shape_of(full),
        started=0,
        finished=1,
        kind=np.full(len(link), ProbeKind.T1_SELF, dtype=np.uint8),
        src=src,
        dst=src,
        plane=link // (groups * uplinks),
        uplink=link % uplinks,
        rtt_s=rtt,
    )
    start = time.monotonic()
    quality = link_quality(samples, full)
    seconds = time.monotonic() - start
    print(f"full-131k: {len(link):,} samples to link quality in {seconds:.2f} s")
    assert np.flatnonzero(quality.loss.ravel() > 0).tolist() == [12345]
    assert quality.sent.min() == 1
    assert seconds < 20
