# SPDX-License-Identifier: Apache-2.0
"""Rates over time: from readings to rates, what a terminal shows, pictures, and `mrcctl plot`."""

from __future__ import annotations

import asyncio
import io
import re
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from controller.cli import app
from controller.fabric import FabricError
from controller.inventory import load_inventory
from controller.p4rt import load_program
from controller.sampler import Recorder, RecorderError
from controller.timeseries import (
    Cell,
    Event,
    Floats,
    Line,
    Readings,
    Series,
    bins,
    nice_ceiling,
    phases,
    plane_lines,
    rates,
    t1_lines,
)
from controller.timeseries_figure import SeriesFigureError, save_series
from controller.timeseries_terminal import print_series
from tests.controller.conftest import FakeFabric
from tests.controller.strategies import shipped

NAN = float("nan")
PORT_OUT = load_program("nic").counters["port_out"].id


def readings(at_s: list[list[float]], packets: list[list[float]]) -> Readings:
    """Lines x = a + b on devices A and B, y = b alone."""
    a, b = Cell("A", "port_out", 2), Cell("B", "port_out", 2)
    lines = (Line("x", (a, b)), Line("y", (b,)))
    return Readings(lines, ("A", "B"), (a, b), np.array(at_s), np.array(packets))


def two_planes(events: tuple[Event, ...] = ()) -> Series:
    """10 s in steps of 0.5 s: plane 0 at 100/s, plane 1 at 400/s and from 5 s on at 0."""
    edges = np.arange(0, 10.5, 0.5)
    plane_1 = np.where(edges[:-1] < 5, 400.0, 0.0)
    return Series(
        "mini: by plane",
        ("plane 0", "plane 1"),
        edges,
        np.stack([np.full(20, 100.0), plane_1], axis=1),
        events,
    )


def shown(
    series: Series, width: int = 80, *, ascii_only: bool = False, colour: bool = False
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
    print_series(series, console)
    file.flush()
    return binary.getvalue().decode()


# ---- rates --------------------------------------------------------------------------------------


def test_rates_use_the_time_at_which_each_device_answered() -> None:
    series = rates(readings([[0, 0.2], [1, 2.2]], [[5, 0], [105, 100]]), "t")
    assert series.rates.tolist() == [[150.0, 50.0]]
    assert series.edges_s.tolist() == pytest.approx([0.1, 1.6])
    assert series.labels == ("x", "y")


def test_what_was_not_read_is_unknown_only_where_it_is_needed() -> None:
    at_s: list[list[float]] = [[0, 0], [NAN, 1], [2, 2], [3, 3]]
    series = rates(readings(at_s, [[0, 0], [NAN, 10], [20, 30], [30, 40]]), "t")
    assert np.isnan(series.rates[:2, 0]).all()
    assert series.rates[:, 1].tolist() == [10, 20, 10]
    assert series.rates[2, 0] == 20
    assert series.edges_s.tolist() == [0, 1, 2, 3]


def test_a_reading_without_any_answer_lies_between_its_neighbours() -> None:
    series = rates(readings([[0, 0], [NAN, NAN], [4, 4]], [[0, 0], [NAN, NAN], [4, 4]]), "t")
    assert series.edges_s.tolist() == [0, 2, 4]
    assert np.isnan(series.rates).all()


def test_a_counter_that_went_back_is_a_gap() -> None:
    series = rates(readings([[0, 0], [1, 1], [2, 2]], [[9, 9], [1, 19], [3, 29]]), "t")
    assert np.isnan(series.rates[0, 0])
    assert series.rates[1].tolist() == [12, 10]


def test_bins_keep_packets_and_leave_unknown_time_out() -> None:
    values: Floats = np.array([[10.0], [NAN], [40.0]])
    series = Series("t", ("x",), np.array([0.0, 1.0, 2.0, 4.0]), values)
    got = bins(series, np.array([0.0, 0.5, 1.5, 2.0, 3.0, 6.0, 7.0]))[:, 0]
    np.testing.assert_allclose(got, [10, 10, NAN, 40, 40, NAN])
    assert bins(series, np.array([0.0, 4.0]))[0, 0] == pytest.approx(90 / 3)
    assert series.between(2, 4).tolist() == [40]


def test_phases_lie_between_events() -> None:
    series = two_planes((Event(5.0, "cut"), Event(99.0, "late"), Event(-1.0, "early")))
    found = phases(series)
    assert [(phase.start_s, phase.end_s) for phase in found] == [(0, 5), (5, 10)]
    assert [phase.rates.tolist() for phase in found] == [[100, 400], [100, 0]]


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (NAN, 1), (0.3, 0.5), (1, 1), (3, 5), (5.1, 10), (1001, 2000)]
)
def test_axes_end_at_round_numbers(value: float, top: float) -> None:
    assert nice_ceiling(value) == pytest.approx(top)


# ---- lines --------------------------------------------------------------------------------------


def test_lines_by_plane() -> None:
    mini = shipped("mini")
    lines = plane_lines(mini, ["n0-1"])
    assert [line.label for line in lines] == ["plane 0", "plane 1"]
    assert lines[1].cells == (Cell("n0-1", "port_out", 3),)
    everywhere = plane_lines(mini, direction="received")
    assert {cell.device for cell in everywhere[0].cells} == {"n0-0", "n0-1", "n1-0", "n1-1"}
    assert {cell.counter for cell in everywhere[0].cells} == {"port_in"}
    with pytest.raises(FabricError, match="p0t0-0 is a T0"):
        plane_lines(mini, ["p0t0-0"])


def test_lines_by_t1_are_counted_by_the_t0s_of_its_plane() -> None:
    mini = shipped("mini")
    lines = t1_lines(mini)
    assert [line.label for line in lines] == ["p0t1-0", "p0t1-1", "p1t1-0", "p1t1-1"]
    for line in lines:
        t1 = mini.device(line.label)
        for cell in line.cells:
            assert mini.neighbour(mini.device(cell.device), cell.index)[0] == t1
        assert len(line.cells) == mini.groups


# ---- pictures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_terminal_shows_every_line_with_axes_and_events(width: int, ascii_only: bool) -> None:
    output = shown(two_planes((Event(5.0, "cut p1"),)), width, ascii_only=ascii_only)
    lines = output.splitlines()
    assert all(len(line) <= width for line in lines)
    assert lines[0] == "mini: by plane, packets/s"
    plots = [line for line in lines if line.startswith(("plane 0 500 ", "plane 1 500 "))]
    assert len(plots) == 2
    letter = lines[1].index("A")
    # 400 of 500 fills the second row from above up to the event, then nothing.
    below = lines[lines.index(plots[1]) + 1]
    full = "#" if ascii_only else "█"
    assert set(below[plots[1].index("500") + 5 : letter - 1]) == {full}
    assert below[letter + 1 :].strip() == ""
    assert "A  5.00 s: cut p1" in output
    means = [line.split() for line in lines[-2:]]
    assert means == [["plane", "0", "100", "100"], ["plane", "1", "400", "0"]]
    assert re.search(r"^ +0 s +\d", output, re.MULTILINE)


def test_colour_adds_nothing_but_colour() -> None:
    plain = shown(two_planes())
    assert re.sub(r"\x1b\[[\d;]*m", "", shown(two_planes(), colour=True)) == plain


def test_unknown_time_is_not_shown_as_nothing() -> None:
    series = two_planes()
    series.rates[4:8, 0] = NAN
    lines = shown(series).splitlines()
    base = lines[next(i for i, line in enumerate(lines) if line.startswith("plane 1")) - 2]
    assert base.count("?") == pytest.approx(0.2 * 66, abs=2)
    series.rates[:] = NAN
    assert "no data" in shown(series)


def test_a_trickle_is_not_shown_as_nothing() -> None:
    series = two_planes()
    series.rates[:, 0] = 0.5
    rows = shown(series).splitlines()
    base = rows[next(i for i, line in enumerate(rows) if line.startswith("plane 1")) - 2]
    assert "▁" in base


def test_many_lines_take_a_row_each() -> None:
    edges = np.array([0.0, 1.0])
    labels = tuple(f"p{n}t1-0" for n in range(40))
    output = shown(Series("t", labels, edges, np.full((1, 40), 5.0)))
    assert len(output.splitlines()) < 130


def test_events_that_fall_together_stay_apart() -> None:
    events = tuple(Event(9.99, f"e{n}") for n in range(3))
    assert "ABC" in shown(two_planes(events)).splitlines()[1]


def test_pictures_are_told_apart_without_colour(tmp_path: Path) -> None:
    series = two_planes((Event(5.0, "cut p1"),))
    for name in ("a.png", "a.svg", "b.svg"):
        save_series(series, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "a.svg").read_text()
    ElementTree.fromstring(svg)
    assert svg == (tmp_path / "b.svg").read_text()
    assert "stroke-dasharray" in svg
    with pytest.raises(SeriesFigureError, match=r"allowed: \.png, \.svg"):
        save_series(series, tmp_path / "x.jpg")


def test_matplotlib_is_not_loaded_before_a_picture_is_drawn() -> None:
    code = "import controller.cli, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- recording ----------------------------------------------------------------------------------


def grow(fake_fabric: FakeFabric, per_s: dict[int, float]) -> None:
    """Every NIC's `port_out` grows by so much on these ports."""
    began = time.monotonic()

    def cell(counter_id: int, index: int) -> int:
        assert counter_id == PORT_OUT
        return int(per_s[index] * (time.monotonic() - began))

    for name, switch in fake_fabric.switches.items():
        if name.startswith("n"):
            switch.cell = cell


def mrcctl(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def test_plot_watches_the_fabric(fake_fabric: FakeFabric, tmp_path: Path) -> None:
    mrcctl("push")
    grow(fake_fabric, {2: 10_000, 3: 40_000})
    png = tmp_path / "plot.png"
    arguments = ("--nic", "n0-0", "--for", "0.5", "--every", "50", "--png", str(png))
    output = mrcctl("plot", *arguments).output
    assert "mini: sent by n0-0 on each plane, packets/s" in output
    means = [line.split() for line in output.splitlines() if re.match(r"plane \d +[\d,]+$", line)]
    counted = [float(words[2].replace(",", "")) for words in means]
    assert counted == pytest.approx([10_000, 40_000], rel=0.1)
    assert png.read_bytes().startswith(b"\x89PNG")
    whole = mrcctl("plot", "--for", "0.3", "--every", "50").output
    assert "sent by all NICs" in whole


def test_plot_by_t1(fake_fabric: FakeFabric) -> None:
    mrcctl("push")
    output = mrcctl("plot", "--by", "t1", "--for", "0.2", "--every", "50").output
    assert all(f"p{plane}t1-{index} " in output for plane in range(2) for index in range(2))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--nic", "h0-0"), "h0-0 is a HOST"),
        (("--nic", "n9-9"), "no device 'n9-9'"),
        (("--by", "t1", "--nic", "n0-0"), "--by t1 has neither"),
        (("--by", "t1", "--direction", "received"), "--by t1 has neither"),
        (("--png", "x.jpg"), "ends in .png or .svg"),
        (("--for", "0.1"), "runs no program"),
    ],
)
def test_plot_errors(fake_fabric: FakeFabric, arguments: tuple[str, ...], says: str) -> None:
    assert says in mrcctl("plot", *arguments, code=1).stderr


def test_a_device_that_stops_answering_leaves_a_gap(fake_fabric: FakeFabric) -> None:
    mrcctl("push")
    grow(fake_fabric, {2: 1000, 3: 1000})
    inventory = load_inventory(fake_fabric.run_dir)
    recorder = Recorder(inventory, plane_lines(fake_fabric.fabric, ["n0-0", "n0-1"]))
    with pytest.raises(RecorderError, match="fewer than 2 readings"):
        recorder.series("t")

    async def watch() -> None:
        async with recorder.recording(0.02):
            await asyncio.sleep(0.2)
            recorder.mark("broken")
            config, fake_fabric.switches["n0-1"].config = fake_fabric.switches["n0-1"].config, None
            await asyncio.sleep(0.2)
            fake_fabric.switches["n0-1"].config = config
            recorder.mark("whole")
            await asyncio.sleep(0.2)

    asyncio.run(watch())
    assert recorder.unread == {"n0-1": "the device runs no program"}
    series = recorder.series("t")
    broken, whole = (event.at_s for event in series.events)
    middle = (series.edges_s[:-1] > broken + 0.05) & (series.edges_s[1:] < whole - 0.05)
    assert middle.any()
    assert np.isnan(series.rates[middle]).all()
    assert not np.isnan(series.rates[-3:]).any()
