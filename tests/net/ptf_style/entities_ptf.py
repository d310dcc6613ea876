# SPDX-License-Identifier: GPL-2.0-only
"""Tests as p4lang/ptf's users write them: a base class over P4Runtime, and PTF's own data plane.

Run by the `ptf` command and not by pytest; tests/net/test_ptf_runner.py does so. The parameters
`grpcaddr`, `p4info` and `config` come from its option --test-params.
"""

# ruff: noqa: N802  (PTF's names)

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import grpc
import ptf
from finsy.proto import p4r, p4r_grpc
from google.protobuf import text_format
from ptf import testutils
from ptf.base_tests import BaseTest

DEVICE_ID = 1
CPU_PORT = 510
TIMEOUT_S = 10


class P4RuntimeTest(BaseTest):  # type: ignore[misc]  # PTF has no type hints
    """Becomes primary, pushes the pipeline, and deletes at the end what a test inserted."""

    def setUp(self) -> None:
        super().setUp()
        self.dataplane = ptf.dataplane_instance
        self.dataplane.flush()
        self.channel = grpc.insecure_channel(testutils.test_param_get("grpcaddr"))
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.requests: queue.Queue[Any] = queue.Queue()
        self.responses: queue.Queue[Any] = queue.Queue()
        self.stream = self.stub.StreamChannel(iter(self.requests.get, None))
        threading.Thread(target=self.read_stream, daemon=True).start()
        self.election_id = p4r.Uint128(low=1)
        self.inserted: list[Any] = []
        arbitration = p4r.MasterArbitrationUpdate(device_id=DEVICE_ID, election_id=self.election_id)
        self.requests.put(p4r.StreamMessageRequest(arbitration=arbitration))
        self.assertEqual(self.responses.get(timeout=TIMEOUT_S).arbitration.status.code, 0)
        self.push_pipeline()

    def push_pipeline(self) -> None:
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=DEVICE_ID,
            election_id=self.election_id,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        )
        text = Path(testutils.test_param_get("p4info")).read_text()
        text_format.Parse(text, request.config.p4info)
        program = Path(testutils.test_param_get("config")).read_bytes()
        request.config.p4_device_config = program
        self.p4info = request.config.p4info
        self.stub.SetForwardingPipelineConfig(request, timeout=TIMEOUT_S)

    def tearDown(self) -> None:
        self.write(*(p4r.Update(type=p4r.Update.DELETE, entity=e) for e in reversed(self.inserted)))
        self.requests.put(None)
        self.stream.cancel()
        self.channel.close()
        super().tearDown()

    def read_stream(self) -> None:
        try:
            for response in self.stream:
                self.responses.put(response)
        except grpc.RpcError:
            return  # cancelled by tearDown

    def write(self, *updates: Any) -> None:
        request = p4r.WriteRequest(
            device_id=DEVICE_ID, election_id=self.election_id, updates=updates
        )
        self.stub.Write(request, timeout=TIMEOUT_S)

    def find(self, kind: str, name: str) -> Any:
        return next(o for o in getattr(self.p4info, kind) if o.preamble.alias == name)

    def insert(self, dst_mac: str, action: str, *params: bytes) -> None:
        """An entry of `exact_table`."""
        entry = p4r.TableEntry(table_id=self.find("tables", "exact_table").preamble.id)
        entry.match.add(field_id=1).exact.value = bytes.fromhex(dst_mac.replace(":", ""))
        entry.action.action.action_id = self.find("actions", action).preamble.id
        for number, value in enumerate(params, start=1):
            entry.action.action.params.add(param_id=number, value=value)
        entity = p4r.Entity(table_entry=entry)
        self.write(p4r.Update(type=p4r.Update.INSERT, entity=entity))
        self.inserted.append(entity)


class ForwardTest(P4RuntimeTest):
    """A known destination leaves at its port, with its new address."""

    def runTest(self) -> None:
        self.insert("00:00:00:00:00:aa", "forward", b"\x02", bytes.fromhex("bb"))
        packet = testutils.simple_tcp_packet(eth_dst="00:00:00:00:00:aa")
        expected = testutils.simple_tcp_packet(eth_dst="00:00:00:00:00:bb")
        testutils.send_packet(self, 1, packet)
        testutils.verify_packets(self, expected, [2])


class UnknownDestinationTest(P4RuntimeTest):
    """What no entry knows is dropped."""

    def runTest(self) -> None:
        self.insert("00:00:00:00:00:aa", "forward", b"\x02", bytes.fromhex("bb"))
        testutils.send_packet(self, 1, testutils.simple_udp_packet(eth_dst="00:00:00:00:00:ac"))
        testutils.verify_no_other_packets(self)


class PacketOutTest(P4RuntimeTest):
    """The controller sends a packet out of a port."""

    def runTest(self) -> None:
        packet = testutils.simple_icmp_packet(eth_dst="00:00:00:00:00:ad")
        message = p4r.PacketOut(payload=bytes(packet))
        message.metadata.add(metadata_id=1, value=b"\x01")
        self.requests.put(p4r.StreamMessageRequest(packet=message))
        testutils.verify_packets(self, packet, [1])


class PacketInTest(P4RuntimeTest):
    """A packet reaches the controller with the port that it came from."""

    def runTest(self) -> None:
        self.insert("00:00:00:00:00:ae", "to_cpu")
        packet = testutils.simple_tcp_packet(eth_dst="00:00:00:00:00:ae")
        testutils.send_packet(self, 2, packet)
        message = self.responses.get(timeout=TIMEOUT_S).packet
        self.assertEqual(message.payload, bytes(packet))
        self.assertEqual(message.metadata[0].value, b"\x02")
        testutils.verify_no_other_packets(self)
