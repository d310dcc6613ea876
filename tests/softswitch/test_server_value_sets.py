# SPDX-License-Identifier: Apache-2.0
"""Parser value sets over P4Runtime, with the feature program `valueset`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from finsy.proto import p4r

from softswitch.dataplane import Dataplane
from softswitch.values import DataplaneOptions, FieldMatch
from tests.softswitch.dataplanes import CPU_PORT
from tests.softswitch.p4rt import (
    DELETE,
    INSERT,
    MODIFY,
    RawClient,
    codes,
    entity,
    field_match,
    load_config,
    only_error,
    primary,
    update,
)
from tests.softswitch.scenarios import PROGRAMS

INVALID = "INVALID_ARGUMENT"


@pytest.fixture
def switch() -> Iterator[tuple[Dataplane, RawClient]]:
    dataplane = Dataplane(DataplaneOptions(cpu_port=CPU_PORT))
    try:
        with primary(dataplane, load_config("valueset", directory=PROGRAMS)) as client:
            yield dataplane, client
    finally:
        dataplane.close()


def value_set(client: RawClient, name: str, *members: dict[str, Any]) -> Any:
    """A ValueSetEntry; each member is a dict of match values by the field's name."""
    info = next(v for v in client.info.value_sets if v.preamble.alias == name)
    message = p4r.ValueSetEntry(value_set_id=info.preamble.id)
    for member in members:
        made = message.members.add()
        for field in info.match:
            if field.name in member:
                made.match.append(field_match(field, member[field.name]))
    return message


def test_members_are_written_and_read(switch: tuple[Dataplane, RawClient]) -> None:
    dataplane, client = switch
    assert client.read(entity(value_set_entry=value_set(client, "ops"))) == [
        entity(value_set_entry=value_set(client, "ops"))
    ]
    some = value_set(client, "ops", {"": 7}, {"": b"\0\x09"})
    client.write(update(MODIFY, value_set_entry=some))
    (found,) = client.read(entity(value_set_entry=value_set(client, "ops")))
    assert found.value_set_entry == value_set(client, "ops", {"": 7}, {"": 9})
    assert dataplane.value_sets["parse.ops"].members() == [(FieldMatch(7),), (FieldMatch(9),)]
    assert len(client.read(entity(value_set_entry=p4r.ValueSetEntry()))) == len(
        client.info.value_sets
    )
    client.write(update(MODIFY, value_set_entry=value_set(client, "ops")))
    assert dataplane.value_sets["parse.ops"].members() == []


def test_ternary_members_may_leave_fields_out(switch: tuple[Dataplane, RawClient]) -> None:
    dataplane, client = switch
    mixed = value_set(client, "mixed", {"b": (0x1200, 0xFF00), "x": 3})
    client.write(update(MODIFY, value_set_entry=mixed))
    ((first, *others),) = dataplane.value_sets["parse.mixed"].members()
    assert first == FieldMatch(0x1200, mask=0xFF00)
    assert others
    (found,) = client.read(entity(value_set_entry=value_set(client, "mixed")))
    assert found.value_set_entry == mixed


def test_what_is_refused(switch: tuple[Dataplane, RawClient]) -> None:
    dataplane, client = switch
    for kind in (INSERT, DELETE):
        assert (
            only_error(client, update(kind, value_set_entry=value_set(client, "ops")))[0] == INVALID
        )
    for members, code in (
        ([{"": n} for n in range(5)], "RESOURCE_EXHAUSTED"),
        ([{"": 1}, {"": b"\0\1"}], "ALREADY_EXISTS"),
        ([{"": 256}], INVALID),
        ([{}], INVALID),
    ):
        change = update(MODIFY, value_set_entry=value_set(client, "ops", *members))
        assert only_error(client, change)[0] == code
    unknown = p4r.ValueSetEntry(value_set_id=77)
    assert only_error(client, update(MODIFY, value_set_entry=unknown))[0] == INVALID
    assert dataplane.value_sets["parse.ops"].members() == []


def test_rollback_and_a_new_program(switch: tuple[Dataplane, RawClient]) -> None:
    dataplane, client = switch
    seven = update(MODIFY, value_set_entry=value_set(client, "ops", {"": 7}))
    client.write(seven)
    outcomes = client.outcomes(
        update(MODIFY, value_set_entry=value_set(client, "ops", {"": 8})),
        update(INSERT, value_set_entry=value_set(client, "ops")),
        atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR,
    )
    assert codes(outcomes) == ["ABORTED", INVALID]
    assert dataplane.value_sets["parse.ops"].members() == [(FieldMatch(7),)]
    client.set_pipeline("RECONCILE_AND_COMMIT")
    assert dataplane.value_sets["parse.ops"].members() == [(FieldMatch(7),)]
    client.set_pipeline("VERIFY_AND_COMMIT")
    assert dataplane.value_sets["parse.ops"].members() == []


def test_a_p4info_of_another_program() -> None:
    """Sizes and widths are compared before anything is loaded."""
    config = load_config("valueset", directory=PROGRAMS)
    config.p4info.value_sets[0].size = 5
    dataplane = Dataplane(DataplaneOptions(cpu_port=CPU_PORT))
    try:
        with pytest.raises(Exception, match="has size 5"), primary(dataplane, config):
            pass
    finally:
        dataplane.close()
