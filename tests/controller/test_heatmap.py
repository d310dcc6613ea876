# SPDX-License-Identifier: Apache-2.0
"""Heat maps: the cells, what a terminal shows with and without colour, and the pictures."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from controller.fabric import Fabric, FabricError
from controller.heatmap import HeatMap, format_loss, format_rtt, pair_heatmap, plane_heatmap
from controller.heatmap_figure import HeatMapFigureError, save_figure
from controller.heatmap_terminal import print_heatmap
from controller.overlay import bind
from controller.policy import Deny, Policy
from controller.quality import Grade, Quality, Thresholds
from controller.samples import ProbeKind, SampleLog, Samples
from tests.controller.strategies import fabric_of, shipped

Rtts = list[float | None]
GOOD: Rtts = [0.3e-3] * 10
SLOW: Rtts = [1.5e-3] * 10
LOST: Rtts = [None] * 10
NONE: Rtts = []


def lab_samples(lab: Fabric) -> Samples:
    """Group 0 to 1: path (1, 2) is slow, (2, 3) dead, (3, 0) not probed; links: (0, 1) is dead."""
    log = SampleLog(lab, 1_790_000_000)
    src, dst = lab.host("h0-0"), lab.host("h1-1")
    special = {(1, 2): SLOW, (2, 3): LOST, (3, 0): NONE}
    for plane in range(4):
        for uplink in range(4):
            log.add(ProbeKind.PATH, src, dst, plane, uplink, special.get((plane, uplink), GOOD))
    for host in (src, dst):
        for uplink in range(4):
            dead = host is src and uplink == 1
            log.add(ProbeKind.T1_SELF, host, host, 0, uplink, LOST if dead else GOOD)
    return log.finish(1_790_000_003.5)


def shown(
    heatmap: HeatMap, width: int = 100, *, colour: bool = False, ascii_only: bool = False
) -> str:
    binary = io.BytesIO()
    file = io.TextIOWrapper(binary, encoding="ascii" if ascii_only else "utf-8")
    console = Console(
        file=file,
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        legacy_windows=False,
    )
    print_heatmap(heatmap, console)
    file.flush()
    return binary.getvalue().decode()


def test_cells_of_a_pair() -> None:
    lab = shipped("lab")
    overlay = bind(Policy(deny=Deny(switches=("p0t1-1",))), lab)
    heatmap = pair_heatmap(lab_samples(lab), lab, 0, 1, overlay)
    grades = np.full((4, 4), Grade.GOOD)
    grades[1, 2], grades[2, 3], grades[3, 0] = Grade.DEGRADED, Grade.BAD, Grade.NO_DATA
    assert np.array_equal(heatmap.grades, grades)
    assert np.argwhere(heatmap.denied).tolist() == [[0, 1]]
    assert heatmap.title == "lab: paths from T0 group 0 to T0 group 1"
    assert heatmap.subtitle == "2026-09-21 14:13:20 UTC, 3.5 s, 150 probes"


def test_a_cut_link_is_the_only_bad_cell_of_its_plane() -> None:
    lab = shipped("lab")
    heatmap = plane_heatmap(lab_samples(lab), lab, 0)
    assert np.argwhere(heatmap.grades == Grade.BAD).tolist() == [[0, 1]]
    assert np.all(np.delete(heatmap.grades.ravel(), 1) == Grade.GOOD)
    assert np.all(plane_heatmap(lab_samples(lab), lab, 1).grades == Grade.NO_DATA)


def test_within_a_group_there_is_one_path_per_plane() -> None:
    lab = shipped("lab")
    overlay = bind(Policy(deny=Deny(planes=(2,))), lab)
    heatmap = pair_heatmap(lab_samples(lab), lab, 1, 1, overlay)
    assert heatmap.grades.shape == (4, 1)
    assert heatmap.denied.ravel().tolist() == [False, False, True, False]


def test_terminal_without_colour() -> None:
    lab = shipped("lab")
    overlay = bind(Policy(deny=Deny(switches=("p0t1-1",))), lab)
    heatmap = pair_heatmap(lab_samples(lab), lab, 0, 1, overlay)
    text = shown(heatmap)
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if re.match(r"[0-3]  ", line)]
    assert len(rows) == 4
    assert rows[0].count("•") == 4
    assert rows[0].count("⊘") == 1
    assert re.search(r"▲  0 %   1\.5 ms", rows[1])
    assert re.search(r"✖  100 %", rows[2])
    assert rows[3].startswith("3  ? ")
    for part in ("✖  bad: loss ≥ 1 % or RTT ≥ 3 ms", "?  no data: no probe", "⊘  denied by policy"):
        assert part in text
    assert "RTT limits are 3 and 10 times this map's median, 300 µs." in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_terminal_with_colour_says_the_same() -> None:
    lab = shipped("lab")
    heatmap = pair_heatmap(lab_samples(lab), lab, 0, 1)
    coloured = shown(heatmap, colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == shown(heatmap)


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    lab = shipped("lab")
    text = shown(pair_heatmap(lab_samples(lab), lab, 0, 1), colour=True)
    assert not re.search(r"\x1b\[[0-9;]*[34]8;", text)
    assert "✖" in text


def test_terminal_without_unicode() -> None:
    lab = shipped("lab")
    overlay = bind(Policy(deny=Deny(switches=("p0t1-1",))), lab)
    text = shown(pair_heatmap(lab_samples(lab), lab, 0, 1, overlay), ascii_only=True)
    assert text.isascii()
    for part in ("./ 0 %", "!  0 %   1.5 ms", "X  100 %", "X  bad: loss >= 1 %", "300 us"):
        assert part in text


def synthetic(rows: int, columns: int, bad: list[tuple[int, int]]) -> HeatMap:
    sent = np.full((rows, columns), 10)
    loss, rtt = np.zeros((rows, columns)), np.full((rows, columns), 1e-5)
    for at in bad:
        loss[at] = 0.5
    return HeatMap(
        "big",
        "a test",
        0,
        1,
        "T0",
        "T1 (= uplink)",
        tuple(map(str, range(rows))),
        tuple(map(str, range(columns))),
        Quality(sent, loss, rtt, rtt),
        np.zeros((rows, columns), dtype=np.bool_),
        Thresholds(),
    )


@pytest.mark.parametrize("width", [40, 80, 200])
def test_wide_maps_are_folded_and_lose_no_cell(width: int) -> None:
    text = shown(synthetic(8, 256, [(3, 100), (7, 255)]), width)
    body = text.split("good:")[0]
    assert max(len(line) for line in text.splitlines()) <= max(width, 90)
    if width > 40:
        assert body.count("•") - 1 == 8 * 256 - 2
        assert body.count("✖") == 2
    else:
        assert "Each cell is the worst of" in text
        assert body.count("✖") == 2


def test_large_maps_are_pooled_by_the_worst() -> None:
    text = shown(synthetic(512, 256, [(300, 77)]), 120)
    assert text.split("good:")[0].count("✖") == 1
    assert len(text.splitlines()) < 90
    assert "Each cell is the worst of 8 x 5 (T0 x T1)." in text
    row = next(line for line in text.splitlines() if "✖" in line)
    assert row.strip().startswith("296-303")


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("shape", [(2, 2), (4, 4), (8, 1), (8, 256), (512, 256), (40, 40)])
def test_pictures(tmp_path: Path, suffix: str, shape: tuple[int, int]) -> None:
    heatmap = synthetic(*shape, [(0, 0), (shape[0] - 1, shape[1] - 1)])
    path = tmp_path / f"map{suffix}"
    save_figure(heatmap, path)
    content = path.read_bytes()
    if suffix == ".png":
        assert content.startswith(b"\x89PNG")
        width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
        assert 600 < width < 2500
        assert 200 < height < 2500
    else:
        assert ElementTree.fromstring(content).tag.endswith("svg")
        assert len(content) < 2_000_000
        again = tmp_path / "again.svg"
        save_figure(heatmap, again)
        assert again.read_bytes() == content


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(HeatMapFigureError, match=r"as \.pdf; allowed: \.png, \.svg"):
        save_figure(synthetic(2, 2, []), tmp_path / "x.pdf")
    mini = shipped("mini")
    empty = SampleLog(mini, 0).finish(0)
    with pytest.raises(FabricError, match=r"no T0 group 2; allowed: 0\.\.1"):
        pair_heatmap(empty, mini, 0, 2)
    with pytest.raises(FabricError, match=r"no plane 2; allowed: 0\.\.1"):
        plane_heatmap(empty, mini, 2)


def test_without_any_sample_all_is_no_data(tmp_path: Path) -> None:
    fabric = fabric_of(2, 2, 3, 1)
    heatmap = pair_heatmap(SampleLog(fabric, 0).finish(0), fabric, 0, 1)
    assert np.all(heatmap.grades == Grade.NO_DATA)
    text = shown(heatmap)
    assert text.count("?") == 7
    assert "RTT" not in text
    save_figure(heatmap, tmp_path / "x.png")


def test_the_command_line_does_not_pay_for_matplotlib() -> None:
    import subprocess

    code = "import sys, controller.heatmap_figure; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0, "0 %"),
        (0.001, "0.1 %"),
        (0.0123, "1.2 %"),
        (0.123, "12 %"),
        (1, "100 %"),
        (1e-5, "0.001 %"),
    ],
)
def test_loss_in_words(fraction: float, text: str) -> None:
    assert format_loss(fraction) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9.1e-6, "9.1 µs"), (312e-6, "312 µs"), (1.23e-3, "1.2 ms"), (0.25, "250 ms"), (2, "2 s")],
)
def test_round_trips_in_words(seconds: float, text: str) -> None:
    assert format_rtt(seconds) == text
