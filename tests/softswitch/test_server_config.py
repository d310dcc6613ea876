# SPDX-License-Identifier: Apache-2.0
"""SetForwardingPipelineConfig, GetForwardingPipelineConfig and Capabilities."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from finsy.proto import p4r
from hypothesis import given
from hypothesis import strategies as st

from softswitch.errors import Unsupported
from softswitch.pipeline import device_data
from softswitch.wire import varint
from tests.softswitch.p4rt import (
    DEVICE_ID,
    MODIFY,
    FakeDataplane,
    RawClient,
    entity,
    load_config,
    primary,
    serving,
    set_election_id,
    update,
)

GET = p4r.GetForwardingPipelineConfigRequest


class Setup:
    def __init__(self, address: str, dataplane: FakeDataplane) -> None:
        self.dataplane = dataplane
        self.client = RawClient(address)
        self.stream = self.client.stream()
        self.stream.arbitrate(1)

    def get(self, response_type: int = GET.ALL) -> Any:
        request = GET(device_id=DEVICE_ID, response_type=response_type)
        return self.client.stub.GetForwardingPipelineConfig(request)

    def error(self, action: str, config: Any) -> tuple[str, str]:
        with pytest.raises(grpc.RpcError) as caught:
            self.client.set_pipeline(action, config)
        return caught.value.code().name, caught.value.details()


@pytest.fixture
def setup() -> Iterator[Setup]:
    dataplane = FakeDataplane()
    with serving(dataplane) as address:
        setup = Setup(address, dataplane)
        yield setup
        setup.client.close()


def test_capabilities(setup: Setup) -> None:
    for device_id in (0, DEVICE_ID):
        response = setup.client.stub.Capabilities(p4r.CapabilitiesRequest(device_id=device_id))
        assert re.fullmatch(r"1\.4\.\d+", response.p4runtime_api_version)
    with pytest.raises(grpc.RpcError) as caught:
        setup.client.stub.Capabilities(p4r.CapabilitiesRequest(device_id=99))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_config_is_unset_before_any_was_set(setup: Setup) -> None:
    for response_type in range(4):
        assert not setup.get(response_type).HasField("config")
    with pytest.raises(grpc.RpcError) as caught:
        setup.client.read(entity(table_entry=p4r.TableEntry()))
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_get_returns_what_was_set(setup: Setup) -> None:
    config = load_config(cookie=1 << 63)
    setup.client.set_pipeline(config=config)
    assert setup.get().config == config
    assert setup.get(GET.COOKIE_ONLY).config == p4r.ForwardingPipelineConfig(cookie=config.cookie)
    assert setup.get(GET.P4INFO_AND_COOKIE).config == p4r.ForwardingPipelineConfig(
        p4info=config.p4info, cookie=config.cookie
    )
    assert setup.get(GET.DEVICE_CONFIG_AND_COOKIE).config == p4r.ForwardingPipelineConfig(
        p4_device_config=config.p4_device_config, cookie=config.cookie
    )
    setup.client.set_pipeline(config=load_config())
    only_cookie = setup.get(GET.COOKIE_ONLY)
    assert only_cookie.HasField("config")
    assert not only_cookie.config.HasField("cookie")


def test_wrong_device_and_election_id(setup: Setup) -> None:
    request = p4r.SetForwardingPipelineConfigRequest(
        device_id=DEVICE_ID + 1,
        action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        config=load_config(),
    )
    set_election_id(request, 1)
    with pytest.raises(grpc.RpcError) as caught:
        setup.client.stub.SetForwardingPipelineConfig(request)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert "unknown device id 8: this switch is device 7" in caught.value.details()
    request.device_id = DEVICE_ID
    set_election_id(request, 2)
    with pytest.raises(grpc.RpcError) as caught:
        setup.client.stub.SetForwardingPipelineConfig(request)
    assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED


def test_verify_changes_nothing(setup: Setup) -> None:
    setup.client.set_pipeline("VERIFY")
    assert setup.dataplane.loads == 0
    assert not setup.get().HasField("config")


def _broken(**changes: Any) -> Any:
    config = load_config()
    for name, value in changes.items():
        setattr(config, name, value)
    return config


def _renamed_table() -> Any:
    config = load_config()
    config.p4info.tables[0].preamble.name = "Other.table"
    return config


def _wider_key() -> Any:
    config = load_config()
    config.p4info.tables[0].match_fields[0].bitwidth = 47
    return config


def _other_kind() -> Any:
    config = load_config()
    config.p4info.tables[0].match_fields[0].match_type = 3
    return config


def _larger_counter() -> Any:
    config = load_config()
    config.p4info.counters[0].size += 1
    return config


def _fewer_params() -> Any:
    config = load_config()
    action = next(a for a in config.p4info.actions if a.preamble.alias == "forward")
    del action.params[1]
    return config


def _id_twice() -> Any:
    config = load_config()
    config.p4info.tables[1].preamble.id = config.p4info.tables[0].preamble.id
    return config


def _absent() -> Any:
    """A config whose P4Info has a table, a counter and a digest that p4c left out of the JSON."""
    config = load_config()
    for messages, number in (
        (config.p4info.tables, 0x02FFFFF0),
        (config.p4info.counters, 0x12FFFFF0),
        (config.p4info.digests, 0x17FFFFF0),
    ):
        absent = messages.add()
        absent.CopyFrom(messages[0])
        absent.preamble.id = number
        absent.preamble.name = f"Ingress.absent_{number}"
        absent.preamble.alias = f"absent_{number}"
    return config


def test_what_p4c_has_optimised_away_is_left_out_and_refused(setup: Setup) -> None:
    config = _absent()
    setup.client.set_pipeline(config=config)
    assert setup.get().config == config
    write = setup.client.insert("exact_table", {"dst_mac": 1}, "drop")
    setup.client.write(write)
    write.entity.table_entry.table_id = 0x02FFFFF0
    ((code, message),) = setup.client.outcomes(write)
    assert code == "INVALID_ARGUMENT"
    assert f"{0x02FFFFF0}" in message
    assert len(setup.client.read(entity(table_entry=p4r.TableEntry()))) >= 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "without a config"),
        (p4r.ForwardingPipelineConfig(p4_device_config=b"{}"), "no p4info"),
        (_broken(p4_device_config=b""), "no p4_device_config"),
        (_broken(p4_device_config=b"\x08\x01nonsense"), "p4_device_config: .*not JSON"),
        (_broken(p4_device_config=b'{"a": 1}'), "p4_device_config: "),
        (_renamed_table(), "table 'Other.table' is not in the program"),
        (_wider_key(), "key 'dst_mac' has 47 bits, in the program 48"),
        (_other_kind(), "key 'dst_mac' is LPM, there exact"),
        (_larger_counter(), "counter 'EntitiesIngress.port_in' has size 513, in the program 512"),
        (_fewer_params(), "action 'EntitiesIngress.forward' has parameters of"),
        (_id_twice(), "is used by table 'EntitiesIngress.exact_table' and by table"),
    ],
)
@pytest.mark.parametrize("action", ["VERIFY", "VERIFY_AND_COMMIT", "RECONCILE_AND_COMMIT"])
def test_bad_config_is_refused_before_anything_is_touched(
    setup: Setup, config: Any, message: str, action: str
) -> None:
    good = load_config(cookie=5)
    setup.client.set_pipeline(config=good)
    setup.client.write(setup.client.insert("exact_table", {"dst_mac": 1}, "drop"))
    code, details = setup.error(action, config)
    assert code == "INVALID_ARGUMENT"
    assert re.search(message, details)
    assert setup.dataplane.loads == 1
    assert setup.get().config == good
    read = setup.client.read(entity(table_entry=setup.client.entry("exact_table")))
    assert len(read) == 1


def test_program_that_the_data_plane_refuses(setup: Setup) -> None:
    setup.client.set_pipeline(config=load_config(cookie=5))
    setup.client.write(setup.client.insert("exact_table", {"dst_mac": 1}, "drop"))
    setup.dataplane.refuse = Unsupported("MyIngress.meter", "meters are not supported")
    code, details = setup.error("VERIFY_AND_COMMIT", load_config(cookie=6))
    assert code == "INVALID_ARGUMENT"
    assert "MyIngress.meter: meters are not supported" in details
    assert setup.get().config.cookie.cookie == 5
    assert len(setup.client.read(entity(table_entry=setup.client.entry("exact_table")))) == 1


def test_commit_clears_all_entities(setup: Setup) -> None:
    client = setup.client
    client.set_pipeline()
    client.write(client.insert("exact_table", {"dst_mac": 1}, "drop"))
    client.set_pipeline()
    assert client.read(entity(table_entry=client.entry("exact_table"))) == []


def test_save_takes_writes_and_commit_replays_them(setup: Setup) -> None:
    client = setup.client
    client.set_pipeline(config=load_config(cookie=1))
    client.write(client.insert("exact_table", {"dst_mac": 1}, "drop"))
    client.set_pipeline("VERIFY_AND_SAVE", load_config(cookie=2))
    assert setup.dataplane.loads == 1
    assert setup.get(GET.COOKIE_ONLY).config.cookie.cookie == 2
    assert client.read(entity(table_entry=client.entry("exact_table"))) == []
    client.write(client.insert("exact_table", {"dst_mac": 2}, "forward", 3, 4))
    client.write(_count(client, 9))
    client.set_pipeline("COMMIT", None)
    assert setup.dataplane.loads == 2
    (read,) = client.read(entity(table_entry=client.entry("exact_table")))
    assert (
        read.table_entry
        == client.insert("exact_table", {"dst_mac": 2}, "forward", 3, 4).entity.table_entry
    )
    (cell,) = client.read(_count(client, 9).entity)
    assert cell.counter_entry.data.packet_count == 100


def _count(client: RawClient, index: int) -> Any:
    entry = p4r.CounterEntry(counter_id=client.id("counters", "port_in"))
    entry.index.index = index
    entry.data.packet_count = 100
    return update(MODIFY, counter_entry=entry)


def test_commit_without_save_and_with_config(setup: Setup) -> None:
    assert setup.error("COMMIT", None)[0] == "NOT_FOUND"
    assert setup.error("COMMIT", load_config())[0] == "INVALID_ARGUMENT"
    assert setup.error("UNSPECIFIED", load_config())[0] == "INVALID_ARGUMENT"


def test_reconcile_keeps_what_was_written(setup: Setup) -> None:
    client = setup.client
    client.set_pipeline(config=load_config(cookie=1))
    client.write(client.insert("exact_table", {"dst_mac": 1}, "drop"), _count(client, 9))
    before = client.read(entity(table_entry=p4r.TableEntry()), _count(client, 9).entity)
    client.set_pipeline("RECONCILE_AND_COMMIT", load_config(cookie=2))
    assert setup.dataplane.loads == 2
    assert setup.get(GET.COOKIE_ONLY).config.cookie.cookie == 2
    assert client.read(entity(table_entry=p4r.TableEntry()), _count(client, 9).entity) == before


def test_reconcile_that_does_not_fit_leaves_everything(setup: Setup) -> None:
    client = setup.client
    client.set_pipeline(config=load_config(cookie=1))
    client.write(client.insert("exact_table", {"dst_mac": 1}, "drop"))
    config = load_config(cookie=2)
    table = config.p4info.tables[0]
    drop = next(a for a in config.p4info.actions if a.preamble.alias == "drop")
    kept = [r for r in table.action_refs if r.id != drop.preamble.id]
    del table.action_refs[:]
    table.action_refs.extend(kept)
    code, details = setup.error("RECONCILE_AND_COMMIT", config)
    assert code == "INVALID_ARGUMENT"
    assert "RECONCILE_AND_COMMIT: table_entry: " in details
    assert setup.dataplane.loads == 1
    assert setup.get(GET.COOKIE_ONLY).config.cookie.cookie == 1
    assert len(client.read(entity(table_entry=client.entry("exact_table")))) == 1


def test_client_that_gives_up_while_the_program_loads() -> None:
    """The switch finishes what it began, and requests in the meantime wait for it."""
    dataplane = FakeDataplane()
    with primary(dataplane) as client:
        dataplane.loading = threading.Event()
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=DEVICE_ID,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=load_config(cookie=77),
        )
        set_election_id(request, 1)
        with pytest.raises(grpc.RpcError) as caught:
            client.stub.SetForwardingPipelineConfig(request, timeout=0.3)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        waiting = client.stub.Write.future(_one_insert(client))
        assert not waiting.done()
        dataplane.loading.set()
        waiting.result(timeout=10)
        response = client.stub.GetForwardingPipelineConfig(GET(device_id=DEVICE_ID))
        assert response.config.cookie.cookie == 77
        assert len(client.read(entity(table_entry=client.entry("exact_table")))) == 1


def _one_insert(client: RawClient) -> Any:
    request = p4r.WriteRequest(
        device_id=DEVICE_ID, updates=[client.insert("exact_table", {"dst_mac": 1}, "drop")]
    )
    set_election_id(request, 1)
    return request


def test_program_wrapped_as_older_scripts_do(setup: Setup) -> None:
    """p4.tmp.P4DeviceConfig: reassign (1) = true, device_data (3) = the program."""
    config = load_config(cookie=9)
    program = config.p4_device_config
    config.p4_device_config = b"\x08\x01\x1a" + varint(len(program)) + program
    setup.client.set_pipeline(config=config)
    assert setup.dataplane.loads == 1
    assert setup.get().config == config


@given(st.binary(max_size=60))
def test_any_bytes_are_unwrapped_without_harm(blob: bytes) -> None:
    wrapped = b"\x08\x01\x1a" + varint(len(blob)) + blob
    assert device_data(wrapped) == blob
    assert isinstance(device_data(blob), bytes)


@given(st.dictionaries(st.text(), st.integers()))
def test_json_is_not_taken_for_a_wrapper(value: dict[str, int]) -> None:
    for indent in (None, 2):
        blob = json.dumps(value, indent=indent).encode()
        assert device_data(blob) == blob


def test_the_end_waits_for_a_program_that_is_still_being_loaded() -> None:
    """Otherwise the data plane would be freed below the thread that loads."""
    dataplane = FakeDataplane()
    dataplane.loading = threading.Event()
    with serving(dataplane) as address:
        client = RawClient(address)
        stream = client.stream()
        stream.arbitrate(1)
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=DEVICE_ID, action="VERIFY_AND_COMMIT", config=client.config
        )
        set_election_id(request, client.election_id)
        with pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
            client.stub.SetForwardingPipelineConfig(request, timeout=0.3)
        threading.Timer(0.5, dataplane.loading.set).start()
        stream.cancel()
        client.close()
    assert dataplane.loads == 1
