#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Compare switches in one run: packets/s forwarded by fabric.p4, entries/s written over P4Runtime.

    unshare --net -- .venv/bin/python scripts/bench_switch.py [softswitch] [bmv2]

Load: Debian's trafgen (package netsniff-ng) offers 254-byte uN frames on one veth pair as fast as
one core can; what arrives behind the switch's other port is counted by the kernel. Generator and
switch share the machine, so compare the switches with one another and with nothing else.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from finsy import P4TableAction

from controller import addressing
from controller.addressing import UsidKind
from ptf_tests import packets
from ptf_tests.device import Device, entry
from ptf_tests.namespace import VethPairs, require_private_namespace
from ptf_tests.switch import TARGETS, SwitchProcess

FRAME_BYTES = 254
SECONDS = 5.0
WARM_UP_S = 1.0
ENTRIES = 1000
ROUNDS = 5
BLOCK = 0xFCBBBB00
PAIRS = (("bench0", "bench0p"), ("bench1", "bench1p"))


def frame() -> bytes:
    """A carrier with two uSIDs, the first the switch's own, padded to FRAME_BYTES."""
    t0 = addressing.usid(UsidKind.T0, 0, 0)
    t1 = addressing.usid(UsidKind.T1, 0, 0)
    carrier = BLOCK << 96 | t0 << 80 | t1 << 64
    payload = bytes(FRAME_BYTES - packets.ETHERNET_BYTES - packets.IPV6_BYTES)
    macs = packets.Macs(destination=0x020000000001, source=0x020000000002)
    source = addressing.host_address(0, 0)
    return packets.ethernet(macs, packets.ipv6(source, carrier, payload, 59))


def received(interface: str) -> int:
    """Packets that the kernel has received on an interface."""
    done = subprocess.run(
        ["ip", "-json", "-stats", "link", "show", "dev", interface],
        check=True,
        capture_output=True,
    )
    return int(json.loads(done.stdout)[0]["stats64"]["rx"]["packets"])


def forwarding_rate(directory: Path) -> tuple[float, float]:
    """(offered, forwarded) packets per second while trafgen runs."""
    config = directory / "frame.cfg"
    config.write_text("{ " + ", ".join(f"0x{byte:02x}" for byte in frame()) + " }\n")
    switch_in, tester_out = PAIRS[1][1], PAIRS[0][1]
    generator = subprocess.Popen(
        # trafgen sends from a child that outlives it; a PID namespace takes both down.
        f"unshare --pid --fork --kill-child trafgen --in {config} --out {tester_out} --cpus 1"
        " --no-sock-mem".split(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(WARM_UP_S)
        started, offered, forwarded = time.monotonic(), received(PAIRS[0][0]), received(switch_in)
        time.sleep(SECONDS)
        seconds = time.monotonic() - started
        if generator.poll() is not None:
            sys.exit(f"trafgen ended early with code {generator.returncode}")
        return (
            (received(PAIRS[0][0]) - offered) / seconds,
            (received(switch_in) - forwarded) / seconds,
        )
    finally:
        generator.kill()
        generator.wait()


def insert_rate(device: Device) -> float:
    """Median entries/s of ROUNDS writes of ENTRIES usid_fib entries each."""
    forward = P4TableAction("forward", port=2, dst_mac=1, src_mac=2)
    entries = [
        entry("usid_fib", {"locator_node": BLOCK << 16 | 0x6000 | index}, forward)
        for index in range(ENTRIES)
    ]
    rates = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        device.insert(*entries)
        rates.append(ENTRIES / (time.perf_counter() - started))
        device.delete(*entries)
    return statistics.median(rates)


def measure(target: str) -> tuple[float, float, float]:
    """(offered packets/s, forwarded packets/s, entries/s) of one target."""
    with tempfile.TemporaryDirectory() as name, VethPairs(PAIRS):
        directory = Path(name)
        ports = {port: end for port, (end, _) in enumerate(PAIRS, start=1)}
        switch = SwitchProcess(target, 1, ports, directory / "switch.log")
        switch.start()
        try:
            device = Device("fabric", switch.address, 1)
            try:
                t0 = addressing.usid(UsidKind.T0, 0, 0)
                t1 = addressing.usid(UsidKind.T1, 0, 0)
                device.insert(
                    entry("locator_block", {"block": BLOCK}, P4TableAction("in_block")),
                    entry("my_sid", {"locator_node": BLOCK << 16 | t0}, P4TableAction("un")),
                    entry(
                        "usid_fib",
                        {"locator_node": BLOCK << 16 | t1},
                        P4TableAction("forward", port=2, dst_mac=1, src_mac=2),
                    ),
                )
                offered, forwarded = forwarding_rate(directory)
                return offered, forwarded, insert_rate(device)
            finally:
                device.close()
        finally:
            switch.stop()


def main() -> None:
    """Measure the targets named on the command line, or all that are installed."""
    targets = sys.argv[1:] or [
        target
        for target in TARGETS
        if target != "bmv2" or shutil.which("simple_switch_grpc") is not None
    ]
    if unknown := set(targets) - set(TARGETS):
        sys.exit(f"unknown target {', '.join(unknown)}: allowed are {', '.join(TARGETS)}")
    if shutil.which("trafgen") is None:
        sys.exit("trafgen is not installed: apt-get install netsniff-ng")
    require_private_namespace()
    print(
        f"fabric.p4, uN, {FRAME_BYTES}-byte frames over veth, {SECONDS:g} s each; "
        f"{ENTRIES} exact entries per write, median of {ROUNDS}; "
        f"{os.cpu_count()} cores, Linux {platform.release()}"
    )
    results = {target: measure(target) for target in targets}
    base = results.get("bmv2", results[targets[-1]])
    print(
        f"{'target':<12}{'offered/s':>12}{'forwarded/s':>13}{'ratio':>8}{'entries/s':>12}{'ratio':>8}"
    )
    for target, (offered, forwarded, entries) in results.items():
        print(
            f"{target:<12}{offered:>12,.0f}{forwarded:>13,.0f}{forwarded / base[1]:>8.2f}"
            f"{entries:>12,.0f}{entries / base[2]:>8.2f}"
        )


if __name__ == "__main__":
    main()
