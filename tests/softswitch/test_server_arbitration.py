# SPDX-License-Identifier: Apache-2.0
"""Client arbitration over gRPC: primaries, backups, notices, roles (P4Runtime 1.4, section 5)."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from finsy.proto import p4r, rpc_code
from google.protobuf import any_pb2

from softswitch.arbitration import election_id_of
from tests.softswitch.p4rt import DEVICE_ID, FakeDataplane, RawClient, serving, set_election_id

OK = rpc_code.OK
ALREADY_EXISTS = rpc_code.ALREADY_EXISTS
NOT_FOUND = rpc_code.NOT_FOUND


@pytest.fixture
def client() -> Iterator[RawClient]:
    with serving(FakeDataplane()) as address:
        client = RawClient(address)
        yield client
        client.close()


def test_first_controller_is_primary_and_later_lower_ones_are_backups(client: RawClient) -> None:
    first, second = client.stream(), client.stream()
    answer = first.arbitrate(10)
    assert (answer.status.code, election_id_of(answer), answer.device_id) == (OK, 10, DEVICE_ID)
    answer = second.arbitrate(9)
    assert (answer.status.code, election_id_of(answer)) == (ALREADY_EXISTS, 10)
    assert first.responses.empty(), "a new backup does not concern the primary"


def test_higher_election_id_takes_over_and_everybody_is_told(client: RawClient) -> None:
    first, second, third = client.stream(), client.stream(), client.stream()
    first.arbitrate(10)
    third.arbitrate(None)
    answer = second.arbitrate(1 << 100)
    assert (answer.status.code, election_id_of(answer)) == (OK, 1 << 100)
    for other in (first, third):
        notice = other.receive("arbitration")
        assert (notice.status.code, election_id_of(notice)) == (ALREADY_EXISTS, 1 << 100)


def test_without_election_id_nobody_is_primary(client: RawClient) -> None:
    answer = client.stream().arbitrate(None)
    assert answer.status.code == NOT_FOUND
    assert not answer.HasField("election_id")


def test_election_id_zero_is_one_like_any_other(client: RawClient) -> None:
    answer = client.stream().arbitrate(0)
    assert (answer.status.code, election_id_of(answer)) == (OK, 0)


def test_no_primary_after_it_left_until_somebody_asks(client: RawClient) -> None:
    first, second = client.stream(), client.stream()
    first.arbitrate(10)
    second.arbitrate(9)
    first.cancel()
    notice = second.receive("arbitration")
    assert (notice.status.code, election_id_of(notice)) == (NOT_FOUND, 10)
    assert second.arbitrate(9).status.code == NOT_FOUND, "9 is below the highest ever seen"
    assert second.arbitrate(10).status.code == OK


def test_half_closed_stream_is_ended_and_not_primary_any_more(client: RawClient) -> None:
    first, second = client.stream(), client.stream()
    first.arbitrate(10)
    second.arbitrate(9)
    first.close()
    assert second.receive("arbitration").status.code == NOT_FOUND
    assert first.responses.get(timeout=5) is None


def test_primary_can_step_back(client: RawClient) -> None:
    first, second = client.stream(), client.stream()
    first.arbitrate(10)
    second.arbitrate(9)
    assert first.arbitrate(5).status.code == NOT_FOUND
    assert second.receive("arbitration").status.code == NOT_FOUND
    assert second.arbitrate(11).status.code == OK
    assert first.receive("arbitration").status.code == ALREADY_EXISTS


def test_used_election_id_ends_the_stream_in_finsys_words(client: RawClient) -> None:
    first = client.stream()
    first.arbitrate(10)
    with pytest.raises(grpc.RpcError) as caught:
        client.stream().arbitrate(10)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "election id 10 is already used" in caught.value.details()
    assert first.responses.empty()


def test_primary_that_takes_a_used_election_id_is_thrown_out(client: RawClient) -> None:
    first, second = client.stream(), client.stream()
    first.arbitrate(10)
    second.arbitrate(9)
    with pytest.raises(grpc.RpcError):
        first.arbitrate(9)
    assert second.receive("arbitration").status.code == NOT_FOUND


def test_unknown_device(client: RawClient) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.stream().arbitrate(1, device_id=99)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert "unknown device id 99: this switch is device 7" in caught.value.details()


def test_live_client_cannot_change_device_or_role(client: RawClient) -> None:
    for change in ({"device_id": 99}, {"role": "other"}):
        stream = client.stream()
        stream.arbitrate(None)
        with pytest.raises(grpc.RpcError) as caught:
            stream.arbitrate(None, **change)
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_roles_have_primaries_of_their_own(client: RawClient) -> None:
    default, blue, blue_backup = client.stream(), client.stream(), client.stream()
    assert default.arbitrate(10).status.code == OK
    answer = blue.arbitrate(10, role="blue")
    assert (answer.status.code, answer.role.name) == (OK, "blue")
    assert blue_backup.arbitrate(3, role="blue").status.code == ALREADY_EXISTS
    assert default.responses.empty()


def test_role_config_is_refused(client: RawClient) -> None:
    stream = client.stream()
    update = p4r.MasterArbitrationUpdate(device_id=DEVICE_ID)
    update.role.name = "blue"
    update.role.config.CopyFrom(any_pb2.Any(type_url="type.googleapis.com/x.Y"))
    stream.send(arbitration=update)
    with pytest.raises(grpc.RpcError) as caught:
        stream.receive("arbitration")
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "role.config (type.googleapis.com/x.Y) is not supported" in caught.value.details()


def test_roles_by_number_are_refused(client: RawClient) -> None:
    """They are deprecated, and to take one for the default role would give away everything."""
    stream = client.stream()
    stream.send(arbitration=p4r.MasterArbitrationUpdate(device_id=DEVICE_ID, role=p4r.Role(id=3)))
    with pytest.raises(grpc.RpcError) as caught:
        stream.receive("arbitration")
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "role.id 3: numbers were replaced by names" in caught.value.details()
    client.stream().arbitrate(10)
    error = _write_error(client, role_id=3, election_id=p4r.Uint128(low=10))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT


def _write_error(client: RawClient, **fields: object) -> grpc.RpcError:
    request = p4r.WriteRequest(**{"device_id": DEVICE_ID, **fields})
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Write(request)
    return caught.value


def test_only_the_primary_may_write(client: RawClient) -> None:
    assert _write_error(client, device_id=1).code() == grpc.StatusCode.NOT_FOUND
    assert _write_error(client, role="blue").code() == grpc.StatusCode.NOT_FOUND
    error = _write_error(client)
    assert error.code() == grpc.StatusCode.PERMISSION_DENIED
    assert "there is none" in error.details()

    stream, backup = client.stream(), client.stream()
    stream.arbitrate(10)
    backup.arbitrate(9)
    request = p4r.WriteRequest(device_id=DEVICE_ID)
    for election_id in (9, 11):
        set_election_id(request, election_id)
        with pytest.raises(grpc.RpcError) as caught:
            client.stub.Write(request)
        assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert "it has election id 10" in caught.value.details()
    set_election_id(request, 10)
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Write(request)
    # Device, role and election id are right, so the missing program is what is wrong (12, 3).
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "no forwarding pipeline config" in caught.value.details()


def test_write_of_a_primary_of_another_role(client: RawClient) -> None:
    default, blue = client.stream(), client.stream()
    default.arbitrate(10)
    blue.arbitrate(3, role="blue")
    error = _write_error(client, role="blue", election_id=p4r.Uint128(low=10))
    assert error.code() == grpc.StatusCode.PERMISSION_DENIED
    error = _write_error(client, role="blue", election_id=p4r.Uint128(low=3))
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
