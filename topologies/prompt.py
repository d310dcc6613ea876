# SPDX-License-Identifier: Apache-2.0
"""The Mininet prompt with this fabric's commands."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from cmd import Cmd
from collections.abc import Callable

from mininet.cli import CLI
from mininet.log import error, output

from topologies.emulation import Emulation
from topologies.processes import REPOSITORY
from topologies.wires import Fault, WireError

# Mininet's own commands for other switches and for IPv4.
_UNSUITABLE = (
    "dpctl", "iperf", "iperfudp", "pingall", "pingallfull", "pingpair", "pingpairfull", "switch",
    "wait",
)  # fmt: skip
INTRODUCTION = """\
This is Mininet's prompt. `h0-0 COMMAND` runs a command on a host, as in `h0-0 ping -c 3 h1-1`,
`nodes` and `links` list what there is, `exit` ends the fabric. Of this fabric:
  cut A B          carrier loss on the wire between two devices, as in `cut p0t0-0 p0t1-1`
  blackhole A B    the wire swallows everything, unseen by both ends
  loss A B PERCENT the wire loses packets at random, in each direction
  restore [A B]    the wire, or all, as new;  `faults` lists what is wrong
  mrcctl ...       the controller: `mrcctl probe`, `mrcctl heatmap`, `mrcctl path h0-0 h1-1`
"""


class FabricPrompt(CLI):
    """Mininet's command line for a running fabric; it is at the prompt when constructed."""

    prompt = "fabric> "
    identchars = f"{Cmd.identchars}-"  # p0t0-0 is one word

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation
        super().__init__(emulation.net)

    def do_help(self, line: str) -> None:
        """Describe the commands."""
        super().do_help(line)
        if not line:
            output(INTRODUCTION)

    def do_cut(self, line: str) -> None:
        """Cut a wire: cut A B"""
        self._on_wire(line, "cut A B", self._emulation.wires.cut)

    def do_blackhole(self, line: str) -> None:
        """Let a wire swallow everything: blackhole A B"""
        self._on_wire(line, "blackhole A B", self._emulation.wires.blackhole)

    def do_loss(self, line: str) -> None:
        """Let a wire lose packets at random: loss A B PERCENT"""
        names, _, percent = line.strip().rpartition(" ")
        try:
            share = float(percent.rstrip("%"))
        except ValueError:
            error("usage: loss A B PERCENT\n")
            return
        self._on_wire(
            names, "loss A B PERCENT", lambda name: self._emulation.wires.loss(name, share)
        )

    def do_restore(self, line: str) -> None:
        """Restore a wire, or all: restore [A B]"""
        wires = self._emulation.wires
        if line.strip():
            self._on_wire(line, "restore [A B]", wires.restore)
            return
        for name, fault in wires.faults.items():
            if fault is not Fault.NONE:
                wires.restore(name)
                output(f"{name}: restored\n")

    def do_faults(self, _: str) -> None:
        """List the wires that are not as new."""
        found = {
            name: fault
            for name, fault in self._emulation.wires.faults.items()
            if fault is not Fault.NONE
        }
        for name, fault in found.items():
            output(f"{name}: {fault.value}\n")
        if not found:
            output("no faults\n")

    def do_link(self, line: str) -> None:
        """Mininet's form of cut and restore: link A B down|up"""
        names, _, state = line.strip().rpartition(" ")
        if state == "down":
            self.do_cut(names)
        elif state == "up" and names:
            self.do_restore(names)
        else:
            error("usage: link A B down|up\n")

    def do_mrcctl(self, line: str) -> None:
        """Run the controller's command line: mrcctl ..."""
        try:
            words = shlex.split(line)
        except ValueError as problem:
            error(f"mrcctl: {problem}\n")
            return
        subprocess.run(
            [sys.executable, "-m", "controller", *words],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "MRC_RUN_DIR": self._run_dir},
            check=False,
        )

    def onecmd(self, line: str) -> bool | None:
        """Run one command; Mininet's that make no sense here are refused."""
        first, _, _ = self.parseline(line)
        if first in _UNSUITABLE:
            error(f"{first} is of no use on this fabric; see `help`\n")
            return None
        return super().onecmd(line)

    @property
    def _run_dir(self) -> str:
        return str(self._emulation.run_dir.path)

    def _on_wire(self, line: str, usage: str, act: Callable[[str], None]) -> None:
        names = line.split()
        if len(names) != 2:
            error(f"usage: {usage}\n")
            return
        try:
            name = self._emulation.wires.between(*names)
            act(name)
        except WireError as problem:
            error(f"{problem}\n")
            return
        output(f"{name}: {self._emulation.wires.faults[name].value}\n")
