# SPDX-License-Identifier: Apache-2.0
"""The Mininet prompt with this fabric's commands."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from cmd import Cmd
from collections.abc import Callable

from mininet.cli import CLI
from mininet.log import error, output

from topologies.emulation import NIC_AGENT, Emulation, EmulationError
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
  blackhole A [B]  the wire, or all wires of A, swallow everything, unseen by both ends
  loss A B PERCENT the wire loses packets at random, in each direction
  restore [A [B]]  the wire, those of A, or all, as new;  `faults` lists what is wrong
  kill A           end a switch, a NIC or `nic-agent` without a word, as in `kill p0t1-0`
  restart A        start it again, with the program and entries that it should have
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
        """Let a wire, or all of a device, swallow everything: blackhole A [B]"""
        self._on_wire(line, "blackhole A [B]", self._emulation.wires.blackhole, whole_device=True)

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
        """Restore a wire, those of a device, or all: restore [A [B]]"""
        wires = self._emulation.wires
        if line.strip():
            self._on_wire(line, "restore [A [B]]", wires.restore, whole_device=True)
            return
        for name, fault in wires.faults.items():
            if fault is not Fault.NONE:
                wires.restore(name)
                output(f"{name}: restored\n")

    def do_faults(self, _: str) -> None:
        """List the wires that are not as new, and the devices that were killed."""
        found = {
            name: fault
            for name, fault in self._emulation.wires.faults.items()
            if fault is not Fault.NONE
        }
        for name, fault in found.items():
            output(f"{name}: {fault.value}\n")
        killed = self._emulation.killed
        for name in killed:
            output(f"{name}: killed\n")
        if not found and not killed:
            output("no faults\n")

    def do_kill(self, line: str) -> None:
        """End the process of a switch, a NIC or the NIC agent: kill A"""
        name = line.strip()
        try:
            self._emulation.kill(name)
        except EmulationError as problem:
            error(f"{problem}\n")
            return
        output(f"{name}: killed\n")

    def do_restart(self, line: str) -> None:
        """Start what was killed again, and program it: restart A"""
        name = line.strip()
        try:
            asyncio.run(self._emulation.restart(name))
        except EmulationError as problem:
            error(f"{problem}\n")
            return
        output(f"{name}: started\n")
        if name != NIC_AGENT:
            self.do_mrcctl(f"push --device {name}")

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

    def _on_wire(
        self, line: str, usage: str, act: Callable[[str], None], *, whole_device: bool = False
    ) -> None:
        """Do something to the wire between two devices, or to all of one if that is allowed."""
        names, wires = line.split(), self._emulation.wires
        if not (len(names) == 2 or (len(names) == 1 and whole_device)):
            error(f"usage: {usage}\n")
            return
        try:
            found = wires.of_device(*names) if len(names) == 1 else [wires.between(*names)]
            for name in found:
                act(name)
        except WireError as problem:
            error(f"{problem}\n")
            return
        for name in found:
            output(f"{name}: {wires.faults[name].value}\n")
