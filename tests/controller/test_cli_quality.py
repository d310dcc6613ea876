# SPDX-License-Identifier: Apache-2.0
"""mrcctl probe and heatmap, with agents whose answers a test decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from controller.cli import app
from controller.samples import load_samples
from mrc.messages import ProbeTarget
from tests.controller.conftest import MINI, FakeFabric

T1_CARRIER = "fcbb:bb00:2400:4401:2400:6400::"  # h0-0 - p1t0-0 - p1t1-1 and back
ECMP = "version: 1\nspray: {mode: ecmp}\n"


def mrcctl(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def lose_t1(target: ProbeTarget, path_ev: int | None) -> int:
    return 10 if target.carrier == T1_CARRIER else 0


def test_probe_measures_and_keeps_the_samples(fake_fabric: FakeFabric, tmp_path: Path) -> None:
    output = mrcctl("probe").output
    words = " ".join(output.split())
    assert "NIC-T0 links 80 0 0 % 1 ms 1 ms" in words
    assert "T0-T1 links 160 0 0 % 1 ms 1 ms" in words
    assert "paths 400 0 0 % 1 ms 1 ms" in words
    assert "no probe was lost" in words
    assert len(load_samples(fake_fabric.run_dir / "samples.npz")) == 640
    chosen = tmp_path / "mine.json"
    mrcctl("probe", "--no-links", "--from", "h0-0", "--to", "h1-0", "-o", str(chosen))
    assert len(load_samples(chosen)) == 40


def test_probe_names_what_is_lossy(fake_fabric: FakeFabric) -> None:
    fake_fabric.agents["h0-0"].lose = lose_t1
    words = " ".join(mrcctl("probe").output.split())
    assert "h0-0 - p1t0-0 - p1t1-1 and back 10 of 10" in words


def test_probe_errors(fake_fabric: FakeFabric) -> None:
    assert "no plane 5" in mrcctl("probe", "--plane", "5", code=1).stderr
    nothing = mrcctl("probe", "--no-paths", "--no-links", code=1)
    assert "nothing to probe" in nothing.stderr
    fake_fabric.agents["h1-0"].refuse = "broken"
    result = mrcctl("probe", code=1)
    assert "h1-0: agent at" in result.stderr
    assert "broken" in result.stderr
    (fake_fabric.run_dir / "policy.yaml").write_text(ECMP)
    assert "no EV names a path" in mrcctl("probe", code=1).stderr


def test_heatmap_shows_the_bad_link(fake_fabric: FakeFabric) -> None:
    for name in ("h0-0", "h0-1"):
        fake_fabric.agents[name].lose = lambda target, path_ev: (
            10 if (target.carrier or "").startswith("fcbb:bb00:2400:4401:") else 0
        )
    output = mrcctl("heatmap", "--probe", "--plane", "1").output
    assert "mini: T0-T1 links of plane 1" in output
    assert output.count("✖") == 2, "the link, and the legend"
    assert "mini: T0-T1 links of plane 0" in mrcctl("heatmap").output


def test_heatmap_draws_pictures(fake_fabric: FakeFabric, tmp_path: Path) -> None:
    mrcctl("probe")
    png, svg = tmp_path / "map.png", tmp_path / "map.svg"
    mrcctl("heatmap", "--pair", "0", "1", "--png", str(png), "--svg", str(svg))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "run `mrcctl probe` first"),
        (("--png", "x.png"), "choose it with either --pair or --plane"),
        (("--plane", "0", "--png", "x.svg"), "ends in .png"),
        (("--loss", "5", "1"), "loss thresholds"),
        (("--samples", "missing.npz"), "no samples at missing.npz"),
    ],
)
def test_heatmap_errors(fake_fabric: FakeFabric, arguments: tuple[str, ...], says: str) -> None:
    assert says in mrcctl("heatmap", *arguments, code=1).stderr


def test_heatmap_of_stored_samples_needs_no_running_fabric(
    fake_fabric: FakeFabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kept.npz"
    mrcctl("probe", "-o", str(file))
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path / "nothing"))
    output = mrcctl("heatmap", "--samples", str(file), "--topo", str(MINI)).output
    assert output.count("mini: ") == 3
    wrong = mrcctl(
        "heatmap", "--samples", str(file), "--topo", str(MINI.with_name("lab.yaml")), code=1
    )
    assert "samples are of fabric mini" in wrong.stderr
