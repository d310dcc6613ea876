# SPDX-License-Identifier: Apache-2.0
"""A program without a controller: its tables and action profiles as a P4Info would have them.

A switch that was started with a JSON on its command line has no P4Info, so P4Runtime cannot reach
its entities. Commands can: this view has the names of the JSON, and ids that nobody else sees.
"""

from __future__ import annotations

from collections.abc import Mapping

from softswitch import bmjson
from softswitch.bmread import read_program
from softswitch.dataplane import Dataplane
from softswitch.description import Description, TableDescription, describe
from softswitch.p4info import (
    ActionInfo,
    MatchField,
    MatchKind,
    MeterKind,
    MeterSpec,
    P4InfoView,
    ProfileInfo,
    Scope,
    TableInfo,
    Value,
    ValueSetInfo,
)
from softswitch.pipeline import PipelineManager

_KINDS = {
    "exact": MatchKind.EXACT,
    "valid": MatchKind.EXACT,
    "lpm": MatchKind.LPM,
    "ternary": MatchKind.TERNARY,
    "range": MatchKind.RANGE,
}


def adopt(dataplane: Dataplane, pipeline: PipelineManager, json: bytes) -> None:
    """Let commands reach the entities of a program that a data plane has just loaded."""
    program = read_program(json)
    description = describe(program)
    widths = {name: value_set.bitwidths for name, value_set in dataplane.value_sets.items()}
    pipeline.adopt(program, description, _view(program, description, widths))


def _view(
    program: bmjson.Program, description: Description, value_sets: Mapping[str, tuple[int, ...]]
) -> P4InfoView:
    """Tables, actions, action profiles and value sets of a program.

    Its arrays are left out, because only the data plane keeps them. `value_sets` has the widths of
    the keys of those on which a parser state selects.
    """
    actions = {
        number: ActionInfo(
            number,
            action.name,
            action.name,
            tuple(Value(i, name, width) for i, (name, width) in enumerate(action.params, start=1)),
        )
        for number, action in enumerate(program.actions.values(), start=1)
    }
    numbers = dict(zip(program.actions, actions, strict=True))
    pipelines = program.pipelines.values()
    profiles = [profile for pipeline in pipelines for profile in pipeline.profiles.values()]
    profile_ids = {profile.name: i for i, profile in enumerate(profiles, start=1)}
    tables = [table for pipeline in pipelines for table in pipeline.tables.values()]
    view = P4InfoView(actions=actions)
    for number, table in enumerate(tables, start=1):
        in_table = {
            numbers[i]: (actions[numbers[i]], int(Scope.TABLE_AND_DEFAULT)) for i in table.actions
        }
        profile_id = 0 if table.profile is None else profile_ids[table.profile]
        view.tables[number] = _table(
            number, table, description.tables[table.name], in_table, profile_id
        )
    for profile in profiles:
        number = profile_ids[profile.name]
        view.profiles[number] = ProfileInfo(
            number,
            profile.name,
            profile.name,
            table_ids=tuple(i for i, t in view.tables.items() if t.profile_id == number),
            with_selector=profile.selector is not None,
            size=profile.max_size,
            max_group_size=0,
            sum_of_members=False,
            max_member_weight=0,
        )
    for number, value_set in enumerate(program.value_sets.values(), start=1):
        widths = value_sets[value_set.name] or (value_set.width,)
        view.value_sets[number] = ValueSetInfo(
            number,
            value_set.name,
            value_set.name,
            value_set.size,
            tuple(
                MatchField(i + 1, f"key {i + 1}", width, kind=MatchKind.EXACT, index=i)
                for i, width in enumerate(widths)
            ),
        )
    return view


def _table(
    number: int,
    table: bmjson.Table,
    described: TableDescription,
    actions: dict[int, tuple[ActionInfo, int]],
    profile_id: int,
) -> TableInfo:
    meter = described.meter_bytes
    return TableInfo(
        number,
        table.name,
        table.name,
        size=table.max_size,
        fields=tuple(
            MatchField(i + 1, key.name, key.width, kind=_KINDS[key.kind], index=i)
            for i, key in enumerate(described.keys)
        ),
        actions=actions,
        const_default=table.default_const,
        profile_id=profile_id,
        has_counter=table.with_counters,
        meter=None if meter is None else MeterSpec(meter, MeterKind.TWO_RATE_THREE_COLOR),
        is_const=bool(table.entries),
        idle_timeout=described.timeouts,
    )
