# SPDX-License-Identifier: Apache-2.0
"""What a fabric needs of this machine, looked at before anything is made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Literal

from topologies.netns import Namespace, NetnsError

Target = Literal["softswitch", "bmv2"]

# Command and the Debian package that has it.
_TOOLS = {
    "ip": "iproute2",
    "ethtool": "ethtool",
    "nft": "nftables",
    "sysctl": "procps",
    "mnexec": "mininet",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "xargs": "findutils",
}
_TARGET_TOOLS: dict[Target, dict[str, str]] = {
    "softswitch": {"cc": "gcc"},
    "bmv2": {
        "simple_switch_grpc": "none of Debian's: see p4lang/behavioral-model, or use softswitch",
        "simple_switch_CLI": "none of Debian's: see p4lang/behavioral-model, or use softswitch",
    },
}
# How to try, and the kernel's option for it.
_KERNEL = {
    "link add name try0 type veth peer name try1": "veth pairs (CONFIG_VETH, `modprobe veth`)",
    "link add name try2 type bridge": "bridges (CONFIG_BRIDGE, `modprobe bridge`)",
}


class CheckError(Exception):
    """This machine lacks something; the message says what, and what to do."""


def choose_target(wanted: str) -> Target:
    """`auto`: BMv2, the reference, where all that it needs is installed, else softswitch."""
    if wanted == "softswitch":
        return "softswitch"
    installed = all(shutil.which(tool) for tool in _TARGET_TOOLS["bmv2"])
    return "bmv2" if wanted == "bmv2" or installed else "softswitch"


def check_machine(target: Target) -> None:
    """Raise CheckError unless a fabric of this target can run here."""
    if os.geteuid() != 0:
        raise CheckError("network namespaces need root: run it as root (sudo make run)")
    tools = _TOOLS | _TARGET_TOOLS[target]
    missing = {tool: package for tool, package in tools.items() if shutil.which(tool) is None}
    if missing:
        listed = ", ".join(f"{tool} (package: {package})" for tool, package in missing.items())
        raise CheckError(f"not installed: {listed}; `make deps` installs Debian's packages")
    if not Path("/proc/sys/net/ipv6").is_dir():
        raise CheckError(
            "this kernel runs without IPv6 (ipv6.disable=1?): a fabric is IPv6 from end to end"
        )
    try:
        namespace = Namespace.new()
    except NetnsError as error:
        raise CheckError(
            f"{error}: root lacks CAP_SYS_ADMIN here; a container needs --privileged"
        ) from error
    try:
        for command, feature in _KERNEL.items():
            try:
                namespace.ip([command])
            except NetnsError as error:
                raise CheckError(f"this kernel has no {feature}: {error}") from error
    finally:
        namespace.close()
