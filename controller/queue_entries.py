# SPDX-License-Identifier: Apache-2.0
"""The entries that set up a switch's egress queues: thresholds of its ports, and traffic classes.

Tables `port_config` and `traffic_classes` of p4src/include/congestion.p4.
"""

from __future__ import annotations

from finsy import P4TableAction, P4TableEntry, P4TableMatch

from controller.addressing import DeviceKind
from controller.fabric import Device, Fabric
from controller.policy import Queues
from mrc.options import DEFAULT_OPTIONS, CodePoints

NEVER = 0xFFFF
"""A threshold that no queue reaches: its capacity is at most as much, and then it is full."""


def queue_entries(
    fabric: Fabric,
    switch: Device,
    queues: Queues,
    code_points: CodePoints = DEFAULT_OPTIONS.code_points,
) -> list[P4TableEntry]:
    """Traffic classes and one entry for each port of a T0 or T1."""
    ports = fabric.ports.port[fabric.ports.of(switch.row)].tolist()
    hosts = fabric.hosts_per_group if switch.kind is DeviceKind.T0 else 0
    to_host, to_switch = _actions(queues, fabric.topology.queue_depth, code_points)
    return [
        *_traffic_classes(code_points),
        *(
            P4TableEntry(
                "port_config",
                match=P4TableMatch(port=port),
                action=to_host if port <= hosts else to_switch,
            )
            for port in ports
        ),
    ]


def _traffic_classes(code_points: CodePoints) -> list[P4TableEntry]:
    classes = {
        code_points.trimmable: "data_trim",
        code_points.trimmable_retx: "data_trim",
        code_points.no_trim: "data_no_trim",
        code_points.trimmed: "control_class",
        code_points.trimmed_lasthop: "control_class",
        code_points.control: "control_class",
    }
    return [
        P4TableEntry(
            "traffic_classes", match=P4TableMatch(dscp=dscp), action=P4TableAction(traffic_class)
        )
        for dscp, traffic_class in classes.items()
    ]


def _actions(
    queues: Queues, capacity: int, code_points: CodePoints
) -> tuple[P4TableAction, P4TableAction]:
    """(to_host, to_switch) for queues that hold `capacity` packets."""

    def packets(percent: int) -> int:
        return max(1, capacity * percent // 100)

    trim = queues.packet_admission_fail_action == "drop_and_trim"
    mark = queues.ecn_mark_mode == "all"
    trimming = {
        "packet_trim_threshold": packets(queues.packet_trim_threshold) if trim else NEVER,
        "packet_trim_size": queues.packet_trim_size,
        "capacity": capacity,
    }
    return (
        P4TableAction("to_host", packet_trim_dscp=code_points.trimmed_lasthop, **trimming),
        P4TableAction(
            "to_switch",
            ecn_min_threshold=packets(queues.ecn_min_threshold) if mark else NEVER,
            ecn_max_threshold=packets(queues.ecn_max_threshold) if mark else NEVER,
            packet_trim_dscp=code_points.trimmed,
            **trimming,
        ),
    )
