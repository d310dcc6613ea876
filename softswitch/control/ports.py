# SPDX-License-Identifier: Apache-2.0
"""Commands for ports and egress queues, which no controller sees."""

from __future__ import annotations

from dataclasses import asdict

from softswitch.control.context import Answer, Context, Handler
from softswitch.control.words import CommandError, aligned, natural
from softswitch.dataplane import MAX_PORT
from softswitch.values import MAX_QUEUE_DEPTH, MAX_QUEUE_RATE, QueueSetting


def _port(word: str) -> int:
    return natural(word, "port", MAX_PORT)


def show_ports(context: Context, words: list[str]) -> Answer:
    """All ports."""
    dataplane = context.dataplane
    data = []
    for port, interface in sorted(dataplane.interfaces.items()):
        data.append(
            {
                "port": port,
                "interface": interface,
                "up": dataplane.port_is_up(port),
                **asdict(dataplane.port_stats(port)),
            }
        )
    rows = [["port", "interface", "state", "received", "", "sent", "", "not received", "not sent"]]
    for item in data:
        lost_in = item["rx_dropped"] + item["rx_errors"]
        lost_out = sum(
            item[name]
            for name in ("tx_full", "tx_dropped", "tx_down", "tx_errors", "queue_dropped")
        )
        rows.append(
            [
                str(item["port"]),
                str(item["interface"]),
                "up" if item["up"] else "down",
                f"{item['rx_packets']} packets",
                f"{item['rx_bytes']} bytes",
                f"{item['tx_packets']} packets",
                f"{item['tx_bytes']} bytes",
                str(lost_in),
                str(lost_out),
            ]
        )
    return Answer(aligned(rows) if data else "no ports", data)


def port_add(context: Context, words: list[str]) -> Answer:
    """Open a port."""
    interface, port = words[0], _port(words[1])
    if port == context.dataplane.options.cpu_port:
        raise CommandError(f"port {port} is the CPU port")
    for number, name in context.dataplane.interfaces.items():
        if name == interface:
            raise CommandError(f"interface {interface} is port {number} already")
    context.dataplane.add_port(port, interface)
    return Answer(f"port {port} is interface {interface}", None)


def port_remove(context: Context, words: list[str]) -> Answer:
    """Close a port."""
    port = _port(words[0])
    context.dataplane.remove_port(port)
    return Answer(f"port {port} removed", None)


def show_queues(context: Context, words: list[str]) -> Answer:
    """Queues of one port or of all."""
    dataplane = context.dataplane
    if words:
        ports = [_port(words[0])]
    else:
        cpu_port = dataplane.options.cpu_port
        ports = sorted({*dataplane.interfaces, *([cpu_port] if cpu_port else [])})
    queues = [
        dataplane.queue(port, priority)
        for port in ports
        for priority in reversed(range(dataplane.options.priority_queues))
    ]
    rows = [["port", "priority", "waiting", "depth", "packets/s", "dropped"]]
    rows += [
        [
            str(q.port),
            str(q.priority),
            str(q.waiting),
            str(q.depth),
            str(q.rate) if q.rate else "no limit",
            str(q.dropped),
        ]
        for q in queues
    ]
    return Answer(aligned(rows), [asdict(queue) for queue in queues])


def _set_queue(context: Context, words: list[str], what: str) -> Answer:
    high = MAX_QUEUE_DEPTH if what == "depth" else MAX_QUEUE_RATE
    value = natural(words[0], what, high)
    port = _port(words[1]) if words[1:] else None
    priority = natural(words[2], "priority") if words[2:] else None
    depth, rate = (value, None) if what == "depth" else (None, value)
    context.dataplane.set_queue(QueueSetting(port, priority, depth, rate))
    where = "all queues" if port is None else f"queues of port {port}"
    if priority is not None:
        where = f"queue {priority} of port {port}"
    unit = "packets" if what == "depth" else "packets/s"
    return Answer(f"{where}: {what} {value} {unit}", None)


def set_queue_depth(context: Context, words: list[str]) -> Answer:
    """Packets that queues hold."""
    return _set_queue(context, words, "depth")


def set_queue_rate(context: Context, words: list[str]) -> Answer:
    """Packets per second of queues."""
    return _set_queue(context, words, "rate")


HANDLERS: dict[str, Handler] = {
    "show_ports": show_ports,
    "port_add": port_add,
    "port_remove": port_remove,
    "show_queues": show_queues,
    "set_queue_depth": set_queue_depth,
    "set_queue_rate": set_queue_rate,
}
