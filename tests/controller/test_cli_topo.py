# SPDX-License-Identifier: Apache-2.0
"""mrcctl's commands that need no running fabric."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from controller.cli import app
from tests.controller.conftest import MINI

FULL = MINI.with_name("full-131k.yaml")


@pytest.fixture(autouse=True)
def no_fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path / "nothing"))


def mrcctl(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def test_topo_check_says_what_the_fabric_is() -> None:
    output = mrcctl("topo", "check", str(MINI)).output
    assert "mini.yaml: ok" in output
    assert "8 (4 T0, 4 T1)" in output
    assert "4 across T1s, 2 within a T0 group" in output


def test_topo_check_of_a_fabric_that_cannot_be_emulated_is_ok_with_a_note() -> None:
    output = mrcctl("topo", "check", str(FULL)).output
    assert "131072 (256 in each of 512 T0 groups)" in output
    assert "note: topology full-131k cannot be emulated" in output


def test_topo_check_reports_a_wrong_file(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: wrong\nplanes: 9\n")
    result = mrcctl("topo", "check", str(wrong), code=1)
    assert "mrcctl: " in result.stderr
    assert "planes" in result.stderr
    assert not result.stdout


def test_topo_show_lists_the_ports_of_a_device() -> None:
    lines = mrcctl("topo", "show", "p0t0-0", "--topo", str(MINI)).output.splitlines()
    assert lines[0] == "p0t0-0: T0, P4Runtime device id 1"
    assert lines[5].split() == ["4", "p0t0-0-eth4", "02:08:00:00:00:04", "p0t1-1", "p0t1-1-eth1"]


def test_without_a_fabric_the_topology_has_to_be_named() -> None:
    result = mrcctl("topo", "show", code=1)
    assert "no fabric is running" in result.stderr
    assert "--topo" in result.stderr


def test_path_shows_each_address_as_it_is_on_the_wire() -> None:
    output = mrcctl("path", "h0-0", "h1-1", "--topo", str(MINI), "--ev", "0x20080000").output
    lines = output.splitlines()
    assert lines[0].startswith("EV 0x20080000: plane 1, uplink 1, tag 0x0; flow label 0x02008")
    hops = [(line.split()[0], line.split()[-1]) for line in lines[2:]]
    assert hops == [
        ("h0-0", "header"),
        ("n0-0", "fcbb:bb00:2400:4401:2401:6401::"),
        ("p1t0-0", "fcbb:bb00:4401:2401:6401::"),
        ("p1t1-1", "fcbb:bb00:2401:6401::"),
        ("p1t0-1", "fcbb:bb00:6401::"),
        ("n1-1", "header"),
        ("h1-1", "receives"),
    ]


def test_path_by_plane_and_uplink_is_the_same_path() -> None:
    common = ("path", "h0-0", "h1-1", "--topo", str(MINI))
    by_number = mrcctl(*common, "--plane", "1", "--uplink", "1").output
    assert by_number == mrcctl(*common, "--ev", "20080000").output


def test_path_without_an_ev_lists_all_paths() -> None:
    lines = mrcctl("path", "h0-0", "h1-1", "--topo", str(MINI)).output.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        "0x00000000",
        "0x00080000",
        "0x20000000",
        "0x20080000",
    ]
    assert lines[-1].endswith("h0-0 - p1t0-0 - p1t1-1 - p1t0-1 - h1-1")
    within = mrcctl("path", "h0-0", "h0-1", "--topo", str(MINI)).output.splitlines()
    assert len(within) == 3
    of_plane = mrcctl("path", "h0-0", "h1-1", "--topo", str(MINI), "--plane", "1").output
    assert len(of_plane.splitlines()) == 3


def test_path_marks_what_the_policy_denies(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\ndeny: {links: [[p0t0-0, p0t1-1], [h0-1, p1t0-0]]}\n")
    options = ("--topo", str(MINI), "--policy", str(policy))
    lines = mrcctl("path", "h0-1", "h1-1", *options).output.splitlines()
    assert [line.split()[3] for line in lines[1:]] == ["1", "denied", "denied", "denied"]


def test_path_with_ecmp_says_that_no_ev_names_one(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nspray: {mode: ecmp}\n")
    options = ("--topo", str(MINI), "--policy", str(policy))
    assert "ecmp" in mrcctl("path", "h0-1", "h1-1", *options, code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("h0-0", "h9-9"), "no device 'h9-9'"),
        (("h0-0", "p0t0-0"), "allowed: a host"),
        (("h0-0", "h0-0"), "two different hosts"),
        (("h0-0", "h1-0", "--ev", "xyz"), "'xyz' is not an EV"),
        (("h0-0", "h1-0", "--ev", "0x100000000"), "it has 32 bits"),
        (("h0-0", "h1-0", "--ev", "0", "--plane", "1"), "leave --plane and --uplink out"),
        (("h0-0", "h1-0", "--plane", "7"), "no plane 7"),
        (("h0-0", "h1-0", "--plane", "0", "--uplink", "5"), "dropped at p0t0-0: UNKNOWN_USID"),
    ],
)
def test_path_errors(arguments: tuple[str, ...], says: str) -> None:
    assert says in mrcctl("path", *arguments, "--topo", str(MINI), code=1).stderr


def test_routes_show_one_table() -> None:
    options = ("--topo", str(MINI), "--table", "usid_fib")
    lines = mrcctl("routes", "show", "p1t1-0", *options).output.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["usid_fib", f"locator_node=fcbb:bb00:240{t0}::/48", f"forward(port={t0 + 1},"]
        for t0 in range(2)
    ]


def test_routes_show_errors() -> None:
    wrong = mrcctl("routes", "show", "p1t1-0", "--topo", str(MINI), "--table", "slots", code=1)
    assert "it has locator_block, my_sid" in wrong.stderr
    host = mrcctl("routes", "show", "h0-0", "--topo", str(MINI), code=1)
    assert "h0-0 is a host and has no tables" in host.stderr


def test_routes_export_json_and_csv_hold_the_same_entries(tmp_path: Path) -> None:
    common = ("routes", "export", "--topo", str(MINI))
    records = json.loads(mrcctl(*common).output)
    file = tmp_path / "routes.csv"
    mrcctl(*common, "--format", "csv", "--output", str(file))
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert [(r["device"], r["table"]) for r in rows] == [(r["device"], r["table"]) for r in records]
    assert {record["device"] for record in records} == {
        f"p{plane}t{tier}-{index}" for plane in (0, 1) for tier in (0, 1) for index in (0, 1)
    }
    nic = json.loads(mrcctl(*common, "n0-0").output)
    assert {"device": "n0-0", "table": "locator_block"}.items() <= nic[0].items()


def test_routes_export_reports_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    target = str(tmp_path / "no" / "x.json")
    result = mrcctl("routes", "export", "--topo", str(MINI), "-o", target, code=1)
    assert f"cannot write {target}" in result.stderr


def test_routes_of_the_full_size_fabric_are_shown() -> None:
    lines = mrcctl("routes", "export", "p7t1-255", "--topo", str(FULL), "--format", "csv").output
    assert "forward(port=512, " in lines


def test_policy_check(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("version: 1\n")
    bad.write_text("version: 1\ndeny: {planes: [0, 1]}\n")
    assert "entries on 12 devices" in mrcctl(
        "policy", "check", str(good), "--topo", str(MINI)
    ).output.replace("\n", " ")
    stderr = mrcctl("policy", "check", str(bad), "--topo", str(MINI), code=1).stderr
    assert "leaves no path" in stderr


def test_python_m_controller_is_mrcctl() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "controller", "topo", "check", "missing.yaml"],
        capture_output=True,
        text=True,
        cwd=MINI.parents[1],
        check=False,
    )
    assert result.returncode == 1
    assert "missing.yaml" in result.stderr
