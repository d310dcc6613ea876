# SPDX-License-Identifier: Apache-2.0
"""softswitch's ports on real interfaces: what arrives and leaves, and interfaces that change."""

from __future__ import annotations

import resource
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from softswitch.dataplane import Dataplane
from softswitch.errors import NotFound, PortError
from softswitch.values import ActionCall, DataplaneOptions, FieldMatch, PortStatus
from tests.softswitch.dataplanes import program

ETH_P_ALL = 3
PAIRS = (("sp1", "sp1p"), ("sp2", "sp2p"))
NODE = 0xFCBB_BB00_0002
DEADLINE_S = 5.0


def ip(*commands: str) -> None:
    subprocess.run(
        ["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True, capture_output=True
    )


def make_pair(ours: str, peer: str, mtu: int = 9216) -> None:
    ip(
        f"link add {ours} mtu {mtu} type veth peer name {peer} mtu {mtu}",
        f"link set {ours} addrgenmode none up",
        f"link set {peer} addrgenmode none up",
    )


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_S} s"
        time.sleep(0.005)


def wait_for_state(switch: Dataplane, port: int, up: bool) -> None:
    wait_for(lambda: switch.port_is_up(port) is up, f"port {port} is seen {'up' if up else 'down'}")


def wait_for_count(switch: Dataplane, port: int, name: str, count: int) -> None:
    wait_for(lambda: getattr(switch.port_stats(port), name) == count, f"{count} {name}")


def events_of(switch: Dataplane) -> list[object]:
    events: list[object] = []
    while (event := switch.next_event(0)) is not None:
        events.append(event)
    return events


@pytest.fixture
def links() -> Iterator[None]:
    """Two veth pairs, gone afterwards."""
    for pair in PAIRS:
        make_pair(*pair)
    try:
        yield
    finally:
        existing = {name for _, name in socket.if_nameindex()}
        ip(*(f"link del {ours}" for ours, _ in PAIRS if ours in existing))


@pytest.fixture
def switch(links: None, tmp_path: Path) -> Iterator[Dataplane]:
    """Port 1 is sp1, port 2 sp2; what goes to NODE leaves at port 2."""
    del links
    ports = {number: ours for number, (ours, _) in enumerate(PAIRS, start=1)}
    dataplane = Dataplane(DataplaneOptions(ports=ports, pcap_dir=tmp_path))
    try:
        dataplane.load(program("un"))
        forward = ActionCall("ingress.forward", (2, 0x020000000001, 0x020000000002))
        dataplane.tables["ingress.routes"].insert([FieldMatch(NODE)], 0, forward)
        dataplane.start()
        for number in ports:
            wait_for_state(dataplane, number, True)
        events_of(dataplane)
        yield dataplane
    finally:
        dataplane.close()


def packet(payload: bytes = b"", hop_limit: int = 64) -> bytes:
    """Ethernet and IPv6 for NODE."""
    header = struct.pack(">IHBB", 6 << 28, len(payload) & 0xFFFF, 59, hop_limit)
    return bytes(12) + b"\x86\xdd" + header + bytes(16) + NODE.to_bytes(6) + bytes(10) + payload


def bound(interface: str) -> socket.socket:
    """A packet socket of the test's end of a link."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.bind((interface, 0))
    opened.settimeout(DEADLINE_S)
    return opened


def passes(payload: bytes = b"") -> None:
    """A packet with this payload gets from port 1 to port 2."""
    with bound("sp1p") as sender, bound("sp2p") as receiver:
        sender.send(packet(payload))
        got = receiver.recv(1 << 17)
    expected = bytearray(packet(payload, hop_limit=63))
    expected[:12] = bytes.fromhex("020000000001020000000002")
    assert got == bytes(expected)


def captured(path: Path) -> bytes:
    """The last packet of a capture file."""
    data, at = path.read_bytes(), 24
    last = b""
    while at < len(data):
        length = struct.unpack_from("=I", data, at + 8)[0]
        last = data[at + 16 : at + 16 + length]
        at += 16 + length
    return last


def test_sizes(switch: Dataplane) -> None:
    for size in (0, 1, 254, 1500, 2048, 4096, 9000, 9216 - 40):
        passes(bytes(index % 251 for index in range(size)))
    stats = switch.port_stats(1), switch.port_stats(2)
    assert (stats[0].rx_packets, stats[1].tx_packets) == (8, 8)
    assert stats[0].rx_bytes == stats[1].tx_bytes


def test_packets_longer_than_a_frame_of_the_ring(switch: Dataplane) -> None:
    ip(*(f"link set {name} mtu 65535" for pair in PAIRS for name in pair))
    for size in (9300, 20000, 65000, 100, 30000):
        passes(bytes(index % 253 for index in range(size)))
    assert switch.port_stats(1).rx_errors == 0


def test_more_packets_than_the_ring_has_frames(switch: Dataplane) -> None:
    with bound("sp1p") as sender:
        for count in range(500, 5001, 500):
            for _ in range(500):
                sender.send(packet(bytes(200)))
            wait_for_count(switch, 2, "tx_packets", count)
    passes()


def test_a_tag_that_the_kernel_took_out_is_put_back(switch: Dataplane, tmp_path: Path) -> None:
    for tpid in (b"\x81\x00", b"\x88\xa8"):
        tagged = bytes(range(12)) + tpid + b"\x6f\xff" + b"\x12\x34" + bytes(50)
        before = switch.port_stats(1).rx_packets
        with bound("sp1p") as sender:
            sender.send(tagged)
        wait_for_count(switch, 1, "rx_packets", before + 1)
        assert captured(tmp_path / "sp1_in.pcap") == tagged


@pytest.mark.parametrize("size", [1, 2, 1000, 8000])
def test_checksums_that_a_local_stack_leaves_open(
    switch: Dataplane, tmp_path: Path, size: int
) -> None:
    ip(
        "addr add 10.9.0.1/24 dev sp1p",
        "neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev sp1p nud permanent",
    )
    before = switch.port_stats(1).rx_packets
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(bytes(range(1, 101)) * (size // 100) + bytes(size % 100), ("10.9.0.2", 9))
    wait_for_count(switch, 1, "rx_packets", before + 1)
    segment = captured(tmp_path / "sp1_in.pcap")[14:]
    udp = segment[20:]
    assert udp[6:8] != b"\0\0"
    pseudo = segment[12:20] + b"\0\x11" + len(udp).to_bytes(2)
    words = pseudo + udp + b"\0" * (len(udp) % 2)
    total = sum(int.from_bytes(words[i : i + 2]) for i in range(0, len(words), 2))
    assert total % 0xFFFF == 0


def test_deleted_and_made_again(switch: Dataplane) -> None:
    passes()
    for ours, peer in PAIRS:
        ip(f"link del {ours}")
        number = int(ours[-1])
        wait_for_state(switch, number, False)
        make_pair(ours, peer)
        wait_for_state(switch, number, True)
        passes(b"again")


def test_down_and_up(switch: Dataplane) -> None:
    for name, number in (("sp1", 1), ("sp2p", 2)):
        ip(f"link set {name} down")
        wait_for_state(switch, number, False)
        ip(f"link set {name} up")
        wait_for_state(switch, number, True)
        passes()
    assert events_of(switch) == [PortStatus(port, up) for port in (1, 2) for up in (False, True)]


def test_sending_to_an_interface_that_is_down_counts(switch: Dataplane) -> None:
    ip("link set sp2 down")
    with bound("sp1p") as sender:
        for _ in range(100):
            sender.send(packet())
    wait_for_count(switch, 2, "tx_down", 100)
    ip("link set sp2 up")
    passes()


def test_an_interface_deleted_under_load(switch: Dataplane) -> None:
    with bound("sp1p") as sender:
        for index in range(3000):
            if index == 1000:
                ip("link del sp2")
            sender.send(packet(bytes(100)))
    wait_for_state(switch, 2, False)
    make_pair(*PAIRS[1])
    wait_for_state(switch, 2, True)
    passes()


def test_a_slow_interface_does_not_stop_the_others(switch: Dataplane) -> None:
    shaper = ["tbf", "rate", "1mbit", "burst", "20kb", "limit", "100000000"]
    subprocess.run(["tc", "qdisc", "add", "dev", "sp2", "root", *shaper], check=True)
    make_pair("sp3", "sp3p")
    try:
        switch.add_port(3, "sp3")
        node = NODE + 1
        forward = ActionCall("ingress.forward", (3, 1, 2))
        switch.tables["ingress.routes"].insert([FieldMatch(node)], 0, forward)
        with bound("sp1p") as sender, bound("sp3p") as receiver:
            for _ in range(6000):
                sender.send(packet(bytes(1000)))
            other = bytearray(packet())
            other[38:44] = node.to_bytes(6)
            started = time.monotonic()
            sender.send(bytes(other))
            assert len(receiver.recv(1 << 16)) == len(other)
            assert time.monotonic() - started < 0.5
        stats = switch.port_stats(2)
        assert stats.tx_full > 0
        assert stats.tx_full + stats.tx_packets == 6000
    finally:
        ip("link del sp3")


def test_ports_at_run_time(switch: Dataplane) -> None:
    switch.remove_port(2)
    with pytest.raises(NotFound):
        switch.port_stats(2)
    with bound("sp1p") as sender:
        sender.send(packet())
    with pytest.raises(PortError, match="sp1 is port 1 already"):
        switch.add_port(2, "sp1")
    with pytest.raises(PortError, match="port 1 is there already"):
        switch.add_port(1, "sp2")
    with pytest.raises(PortError, match="there is no interface none"):
        switch.add_port(2, "none")
    with pytest.raises(PortError, match="at most 15 bytes"):
        switch.add_port(2, "a-name-that-is-too-long")
    switch.add_port(2, "sp2")
    wait_for_state(switch, 2, True)
    passes()


def test_ports_come_and_go_under_load(switch: Dataplane) -> None:
    stop = threading.Event()

    def send() -> None:
        with bound("sp1p") as sender:
            while not stop.is_set():
                sender.send(packet(bytes(100)))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        for _ in range(5):
            for number, (ours, _) in enumerate(PAIRS, start=1):
                switch.remove_port(number)
                switch.add_port(number, ours)
        left = switch.port_stats(2).tx_packets
        wait_for(lambda: switch.port_stats(2).tx_packets > left, "packets leave")
    finally:
        stop.set()
        thread.join()


def test_idle_costs_nothing(switch: Dataplane) -> None:
    passes()
    used = resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(1)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime < 0.01
    assert after.ru_nvcsw - used.ru_nvcsw < 20
    assert switch.port_is_up(1)
